"""The baselines that ship with the product: what a predictor must beat to be worth its time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from laps_sd.data import PromptRequest
from laps_sd.predictors.buckets import Bools, Floats, Ints, log_edges, pooled_hazard, survival_of
from laps_sd.predictors.length import LengthModel, check_lengths
from laps_sd.predictors.lexical import asked_for, words_of
from laps_sd.predictors.state import State

#: Rows of a class's own before its curve counts as much as everybody's.
_PRIOR_ROWS = 10.0


class ConstantLength(LengthModel):
    """The same Kaplan-Meier curve for every prompt."""

    kind = "constant"

    def __init__(self, buckets: int = 32) -> None:
        self.buckets = buckets

    def fit(
        self,
        X: Sequence[PromptRequest | str],
        y: NDArray[Any] | Sequence[int],
        censored: NDArray[Any] | None = None,
        groups: NDArray[Any] | None = None,
    ) -> Self:
        """Learn the pooled curve; ``X`` is only counted."""
        _, lengths, cut = check_lengths(X, y, censored)
        self.edges_ = log_edges(lengths, self.buckets)
        self.survival_ = survival_of(pooled_hazard(lengths, cut, self.edges_))
        return self

    def _survival(self, requests: Sequence[PromptRequest]) -> Floats:
        return np.tile(self.survival_, (len(requests), 1))

    def to_state(self) -> State:
        """Return the curve."""
        return State(self.kind, {"buckets": self.buckets}, {"edges": self.edges_, "survival": self.survival_})

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Rebuild the baseline."""
        model = cls(buckets=state.meta["buckets"])
        model.edges_, model.survival_ = state.arrays["edges"], state.arrays["survival"]
        return model


class ClassLength(LengthModel):
    """One Kaplan-Meier curve per class of prompts; small classes lean on the pooled curve."""

    def __init__(self, buckets: int = 32, classes: int = 10) -> None:
        self.buckets = buckets
        self.classes = classes

    @abstractmethod
    def _value(self, request: PromptRequest) -> float:
        """The number that classes are intervals of."""

    def fit(
        self,
        X: Sequence[PromptRequest | str],
        y: NDArray[Any] | Sequence[int],
        censored: NDArray[Any] | None = None,
        groups: NDArray[Any] | None = None,
    ) -> Self:
        """Learn the class limits (quantiles of the value) and a curve per class."""
        requests, lengths, cut = check_lengths(X, y, censored)
        values = np.array([self._value(r) for r in requests])
        self.limits_ = np.unique(np.quantile(values, np.linspace(0.0, 1.0, self.classes + 1)[1:-1]))
        self.edges_ = log_edges(lengths, self.buckets)
        self.survival_ = class_curves(self._class(values), len(self.limits_) + 1, lengths, cut, self.edges_)
        return self

    def _class(self, values: Floats) -> Ints:
        return np.asarray(np.searchsorted(self.limits_, values, side="left"), dtype=np.int64)

    def _survival(self, requests: Sequence[PromptRequest]) -> Floats:
        curves: Floats = self.survival_[self._class(np.array([self._value(r) for r in requests]))]
        return curves

    def to_state(self) -> State:
        """Return limits and curves."""
        arrays = {"edges": self.edges_, "survival": self.survival_, "limits": self.limits_}
        return State(self.kind, {"buckets": self.buckets, "classes": self.classes}, arrays)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Rebuild the baseline."""
        model = cls(**state.meta)
        model.edges_, model.survival_ = state.arrays["edges"], state.arrays["survival"]
        model.limits_ = state.arrays["limits"]
        return model


class PromptLength(ClassLength):
    """Classes by prompt size in bytes: what schedulers without a predictor go by."""

    kind = "prompt_length"

    def _value(self, request: PromptRequest) -> float:
        return float(len(request.prompt.encode("utf-8", "replace")))


class AskedForLength(ClassLength):
    """Classes by the length that the prompt asks for in words ("in 50 words", "ten ideas")."""

    kind = "asked_for"

    def _value(self, request: PromptRequest) -> float:
        return asked_for(words_of(request.prompt))[2]


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
