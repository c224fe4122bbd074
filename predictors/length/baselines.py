"""The baselines that ship with the product: what a predictor must beat to be worth its time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from laps_sd.data import PromptRequest
from laps_sd.predictors.buckets import Bools, Floats, Ints, log_edges, pooled_hazard, survival_of
from laps_sd.predictors.length.curves import ClassCurves, class_value
from laps_sd.predictors.length.estimator import LengthEstimator

#: Rows of a class's own before its curve counts as much as everybody's.
_PRIOR_ROWS = 10.0


class _ClassLength(LengthEstimator):
    """One Kaplan-Meier curve per class of prompts; small classes lean on the pooled curve."""

    value: ClassVar[str]

    def __init__(self, buckets: int = 32, classes: int = 10) -> None:
        self.buckets = buckets
        self.classes = classes

    def _fit(
        self, requests: list[PromptRequest], tokens: Floats, cut: Bools, groups: NDArray[Any] | None
    ) -> ClassCurves:
        values = np.array([class_value(self.value, r) for r in requests])
        limits = np.unique(np.quantile(values, np.linspace(0.0, 1.0, self.classes + 1)[1:-1]))
        edges = log_edges(tokens, self.buckets)
        classes = np.searchsorted(limits, values, side="left")
        return ClassCurves(self.value, edges, class_curves(classes, len(limits) + 1, tokens, cut, edges), limits)


class ConstantLength(_ClassLength):
    """The same Kaplan-Meier curve for every prompt."""

    value = "constant"


class PromptLength(_ClassLength):
    """Classes by prompt size in bytes: what schedulers without a predictor go by."""

    value = "prompt_length"


class AskedForLength(_ClassLength):
    """Classes by the length that the prompt asks for in so many words ("in 50 words", "ten ideas")."""

    value = "asked_for"


class CategoryLength:
    """One curve per category of a trace. Categories are not known at arrival: a yardstick, not a predictor.

    ``fit`` and ``predict_survival`` take category names instead of requests.
    """

    def __init__(self, buckets: int = 32) -> None:
        self.buckets = buckets

    def fit(self, categories: Sequence[str | None], tokens: Floats, censored: Bools) -> Self:
        """Learn a curve per category, lengths in tokens."""
        self.index_ = {name: i for i, name in enumerate(sorted({c or "" for c in categories}))}
        self.edges_ = log_edges(tokens, self.buckets)
        classes = np.array([self.index_[c or ""] for c in categories], dtype=np.int64)
        self.survival_ = class_curves(classes, len(self.index_), tokens, censored, self.edges_)
        self.pooled_ = survival_of(pooled_hazard(tokens, censored, self.edges_))
        return self

    def predict_survival(self, categories: Sequence[str | None]) -> Floats:
        """Return curves, shape (n, B + 1); an unknown category gets the pooled one."""
        rows = [self.survival_[self.index_[c or ""]] if (c or "") in self.index_ else self.pooled_ for c in categories]
        return np.array(rows).reshape(len(rows), len(self.edges_))


def class_curves(classes: Ints, count: int, tokens: Floats, censored: Bools, edges: Ints) -> Floats:
    """Return one survival curve per class, shape (count, B + 1), hazards shrunken towards the pooled ones."""
    pooled = pooled_hazard(tokens, censored, edges)
    curves = np.tile(survival_of(pooled), (count, 1))
    for label in range(count):
        own = classes == label
        if own.any():
            weight = own.sum() / (own.sum() + _PRIOR_ROWS)
            hazard = weight * pooled_hazard(tokens[own], censored[own], edges) + (1.0 - weight) * pooled
            curves[label] = survival_of(hazard)
    return curves
