"""The baselines that ship with the product: what a predictor must beat to be worth its time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from laps_sd.data import PromptRequest
from laps_sd.predictors.buckets import Floats, log_edges, pooled_hazard, survival_of
from laps_sd.predictors.length import LengthModel, check_lengths
from laps_sd.predictors.state import State


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
