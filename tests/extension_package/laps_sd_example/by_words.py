"""A length predictor: one survival curve for prompts of few words, one for the others."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from laps_sd.data import PromptRequest
from laps_sd.predictors.length import CurveModel, log_edges, pooled_hazard, survival_of
from laps_sd.predictors.state import State


class ByWords(CurveModel):
    """Kaplan-Meier curves below and above the median number of words."""

    kind = "by_words"

    def __init__(self, edges: Any, curves: Any, limit: float) -> None:
        self.edges = edges
        self.curves_of = curves  # shape (2, len(edges)): P(length > edge)
        self.limit = limit

    @classmethod
    def fit(cls, requests: Sequence[PromptRequest], tokens: Any, censored: Any, groups: Any, options: Any) -> Self:
        """Learn both curves; a request that was cut counts as "longer than that"."""
        words = np.array([len(request.prompt.split()) for request in requests])
        limit, edges = float(np.median(words)), log_edges(tokens)
        sides = [side if side.any() else np.ones(len(words), bool) for side in (words <= limit, words > limit)]
        curves = np.array([survival_of(pooled_hazard(tokens[side], censored[side], edges)) for side in sides])
        return cls(edges, curves, limit)

    def survival(self, requests: Sequence[PromptRequest]) -> Any:
        """Return P(length > edge), a row for each request."""
        return self.curves_of[[int(len(request.prompt.split()) > self.limit) for request in requests]]

    def to_state(self) -> State:
        """What a bundle keeps: numbers as JSON, arrays beside them."""
        return State(self.kind, {"limit": self.limit}, {"edges": self.edges, "curves": self.curves_of})

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Rebuild in a server, from a bundle."""
        return cls(state.arrays["edges"], state.arrays["curves"], state.meta["limit"])
