"""What stands in for the acceptance predictor where training saw no acceptance data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from laps_sd.data import PromptRequest
from laps_sd.predictors.buckets import Floats
from laps_sd.predictors.state import State

#: Weight of a prior that nothing supports: one verify step, so the first real step already counts as much.
UNSUPPORTED_STRENGTH = 1.0


class RunMeanAcceptance:
    """The same prior for every prompt, with hardly any weight.

    Parameters
    ----------
    mean : float
        Tokens per verify step, bonus token included.
    strength : float
        Weight of the prior, verify steps.
    """

    kind = "run_mean"

    def __init__(self, mean: float = 1.0, strength: float = UNSUPPORTED_STRENGTH) -> None:
        self.mean = mean
        self.strength = strength

    def predict_prior(
        self,
        requests: Sequence[PromptRequest],
        *,
        draft: str | None = None,
        max_correct_drafts: int | None = None,
        rows: Floats | None = None,
    ) -> tuple[Floats, Floats]:
        """Return prior means (tokens per step) and strengths (steps), each of shape (n,)."""
        n = len(requests)
        return np.full(n, self.mean), np.full(n, self.strength)

    def to_state(self, with_features: bool = True) -> State:
        """Return the two numbers."""
        return State(self.kind, {"mean": self.mean, "strength": self.strength})

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Rebuild the prior."""
        return cls(float(state.meta["mean"]), float(state.meta["strength"]))
