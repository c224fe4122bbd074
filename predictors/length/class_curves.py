"""Baselines that a server can run: one Kaplan-Meier curve per class of prompts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from laps_sd.data import PromptRequest
from laps_sd.predictors.arrays import Bools, Floats, Ints, shaped
from laps_sd.predictors.features.lexical import asked_for, words_of
from laps_sd.predictors.length.buckets import checked_edges, log_edges, pooled_hazard, survival_of
from laps_sd.predictors.length.curves import CurveModel
from laps_sd.predictors.rows import FitOptions
from laps_sd.predictors.state import State

#: Rows of a class's own before its curve counts as much as everybody's.
_PRIOR_ROWS = 10.0


class ClassCurves(CurveModel):
    """One curve per class of prompts; classes are intervals of one number, which each subclass reads off a request.

    Parameters
    ----------
    edges : array of int64, shape (B + 1,)
    table : array, shape (classes, B + 1)
        Survival at the edges.
    limits : array, shape (classes - 1,)
        Upper limits of all classes but the last.
    """

    def __init__(self, edges: Ints, table: Floats, limits: Floats) -> None:
        if len(table) != len(limits) + 1 or table.shape[1] != len(edges):
            raise ValueError("class curves do not fit their limits and edges")
        self.edges = edges
        self.table = table
        self.limits = limits

    @staticmethod
    @abstractmethod
    def value(request: PromptRequest) -> float:
        """Return the number that classes are intervals of."""

    @classmethod
    def fit(
        cls,
        requests: Sequence[PromptRequest],
        tokens: Floats,
        censored: Bools,
        groups: NDArray[Any] | None,
        options: FitOptions,
    ) -> Self:
        """Learn a Kaplan-Meier curve per class; see :meth:`CurveModel.fit`."""
        return cls.learn(requests, tokens, censored)

    @classmethod
    def learn(
        cls, requests: Sequence[PromptRequest], tokens: Floats, censored: Bools, buckets: int = 32, classes: int = 10
    ) -> Self:
        """Learn from checked rows, with at most ``classes`` classes; small ones lean on the pooled curve."""
        values = np.array([cls.value(r) for r in requests])
        limits = np.unique(np.quantile(values, np.linspace(0.0, 1.0, classes + 1)[1:-1]))
        edges = log_edges(tokens, buckets)
        found = np.searchsorted(limits, values, side="left")
        return cls(edges, class_table(found, len(limits) + 1, tokens, censored, edges), limits)

    def survival(self, requests: Sequence[PromptRequest]) -> Floats:
        """Return the curves of the requests' classes."""
        values = np.array([self.value(r) for r in requests])
        curves: Floats = self.table[np.searchsorted(self.limits, values, side="left")]
        return curves

    def to_state(self) -> State:
        """Return limits and curves."""
        return State(self.kind, {}, {"edges": self.edges, "table": self.table, "limits": self.limits})

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Rebuild the classes."""
        edges = checked_edges(state.arrays)
        table = shaped(state.arrays, "table", None, len(edges))
        limits = state.arrays["limits"]
        if limits.shape != (len(table) - 1,) or limits.dtype != np.float64 or (np.diff(limits) <= 0).any():
            raise ValueError("its limits are not as many as its classes, increasing")
        if (np.diff(table) > 0).any() or (table[:, 0] != 1.0).any() or (table < 0.0).any():
            raise ValueError("its table holds what is no survival curve")
        return cls(edges, table, limits)


class ConstantCurves(ClassCurves):
    """The same curve for every prompt."""

    kind = "constant"

    @staticmethod
    def value(request: PromptRequest) -> float:
        """Return 0: there is one class."""
        return 0.0


class PromptLengthCurves(ClassCurves):
    """Classes by prompt size in bytes: what schedulers without a predictor go by."""

    kind = "prompt_length"

    @staticmethod
    def value(request: PromptRequest) -> float:
        """Return the prompt's size, bytes."""
        return float(len(request.prompt.encode("utf-8", "replace")))


class AskedForCurves(ClassCurves):
    """Classes by the length that the prompt asks for in so many words ("in 50 words", "ten ideas")."""

    kind = "asked_for"

    @staticmethod
    def value(request: PromptRequest) -> float:
        """Return the logarithm of the tokens asked for."""
        return asked_for(words_of(request.prompt))[2]


def class_table(classes: Ints, count: int, tokens: Floats, censored: Bools, edges: Ints) -> Floats:
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
