"""The baselines as estimators: what a predictor must beat to be worth its time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from laps_sd.data import PromptRequest
from laps_sd.predictors.arrays import Bools, Floats
from laps_sd.predictors.length.buckets import log_edges, pooled_hazard, survival_of
from laps_sd.predictors.length.class_curves import (
    AskedForCurves,
    ClassCurves,
    ConstantCurves,
    PromptLengthCurves,
    class_table,
)
from laps_sd.predictors.length.estimator import LengthEstimator


class _ClassLength(LengthEstimator):
    """One Kaplan-Meier curve per class of prompts; small classes lean on the pooled curve."""

    curves: ClassVar[type[ClassCurves]]

    def __init__(self, buckets: int = 32, classes: int = 10) -> None:
        self.buckets = buckets
        self.classes = classes

    def _fit(
        self, requests: list[PromptRequest], tokens: Floats, cut: Bools, groups: NDArray[Any] | None
    ) -> ClassCurves:
        return self.curves.learn(requests, tokens, cut, self.buckets, self.classes)


class ConstantLength(_ClassLength):
    """The same Kaplan-Meier curve for every prompt."""

    curves = ConstantCurves


class PromptLength(_ClassLength):
    """Classes by prompt size in bytes."""

    curves = PromptLengthCurves


class AskedForLength(_ClassLength):
    """Classes by the length that the prompt asks for."""

    curves = AskedForCurves


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
        self.survival_ = class_table(classes, len(self.index_), tokens, censored, self.edges_)
        self.pooled_ = survival_of(pooled_hazard(tokens, censored, self.edges_))
        return self

    def predict_survival(self, categories: Sequence[str | None]) -> Floats:
        """Return curves, shape (n, B + 1); an unknown category gets the pooled one."""
        rows = [self.survival_[self.index_[c or ""]] if (c or "") in self.index_ else self.pooled_ for c in categories]
        return np.array(rows).reshape(len(rows), len(self.edges_))
