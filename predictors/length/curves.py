"""Fitted length models as a server uses them: from requests to survival curves, numpy only.

The estimators that are trained (scikit-learn) leave one of these behind. Apart from each other, because importing
scikit-learn costs a server 100 MB and seconds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np

from laps_sd.data import PromptRequest
from laps_sd.predictors.buckets import Floats, Ints
from laps_sd.predictors.features.lexical import asked_for, words_of
from laps_sd.predictors.state import State
from laps_sd.scheduler import SurvivalCurve


class CurveModel(ABC):
    """A fitted length model.

    Attributes
    ----------
    edges : array of int64, shape (B + 1,)
        Bucket edges, tokens.
    """

    kind: ClassVar[str]
    edges: Ints

    @abstractmethod
    def survival(self, requests: Sequence[PromptRequest]) -> Floats:
        """Return P(length > edge) for every request and edge, shape (n, B + 1)."""

    @abstractmethod
    def to_state(self) -> State:
        """Return the learned state as plain numbers and text."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: State) -> Self:
        """Rebuild from :meth:`to_state`'s result; nothing in it is executed."""

    def curves(self, requests: Sequence[PromptRequest]) -> list[SurvivalCurve]:
        """Return one survival curve per request."""
        return SurvivalCurve.batch(self.edges, self.survival(requests))


class ClassCurves(CurveModel):
    """One curve per class of prompts; classes are intervals of one number.

    Parameters
    ----------
    value : str
        The number: ``constant`` (one class), ``prompt_length`` (bytes) or ``asked_for`` (log tokens asked for).
    edges : array of int64, shape (B + 1,)
    table : array, shape (classes, B + 1)
        Survival at the edges.
    limits : array, shape (classes - 1,)
        Upper limits of all classes but the last.
    """

    kind = "classes"

    def __init__(self, value: str, edges: Ints, table: Floats, limits: Floats) -> None:
        if len(table) != len(limits) + 1 or table.shape[1] != len(edges):
            raise ValueError("class curves do not fit their limits and edges")
        self.value = value
        self.edges = edges
        self.table = table
        self.limits = limits

    def survival(self, requests: Sequence[PromptRequest]) -> Floats:
        """Return the curves of the requests' classes."""
        values = np.array([class_value(self.value, r) for r in requests])
        curves: Floats = self.table[np.searchsorted(self.limits, values, side="left")]
        return curves

    def to_state(self) -> State:
        """Return limits and curves."""
        return State(
            self.kind, {"value": self.value}, {"edges": self.edges, "table": self.table, "limits": self.limits}
        )

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Rebuild the classes."""
        return cls(state.meta["value"], **state.arrays)


def class_value(name: str, request: PromptRequest) -> float:
    """Return the number that classes are intervals of."""
    match name:
        case "constant":
            return 0.0
        case "prompt_length":
            return float(len(request.prompt.encode("utf-8", "replace")))
        case "asked_for":
            return asked_for(words_of(request.prompt))[2]
    raise ValueError(f"unknown class value {name}")
