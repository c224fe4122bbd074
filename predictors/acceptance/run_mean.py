"""The same prior for every prompt: a yardstick, and what stands in where training saw no acceptance data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from laps_sd.data import PromptRequest, RequestRecord
from laps_sd.predictors.acceptance.base import (
    LEAST_STRENGTH,
    MOST_STRENGTH,
    MOST_TOKENS,
    AcceptanceModel,
    AcceptancePrior,
)
from laps_sd.predictors.acceptance.observed import verify_steps_of
from laps_sd.predictors.arrays import Floats, number
from laps_sd.predictors.features.base import FeatureSet
from laps_sd.predictors.rows import FitOptions
from laps_sd.predictors.state import State
from laps_sd.scheduler.posterior.settings import PosteriorSettings

#: Weight of a prior that nothing supports: one verify step, so the first real step already counts as much.
UNSUPPORTED_STRENGTH = 1.0
#: Weight of the mean of finished requests, verify steps: what five public runs agree on (docs/acceptance.md).
DEFAULT_STRENGTH = 24.0


class RunMeanAcceptance(AcceptanceModel):
    """One mean, whatever the prompt.

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

    @classmethod
    def fit(
        cls,
        records: Sequence[RequestRecord],
        features: FeatureSet | None,
        options: FitOptions,
        groups: Sequence[str] | None = None,
    ) -> Self:
        """Take the tokens of all verify steps over their number; without any, a prior of hardly any weight."""
        seen = [(r.accept_length, verify_steps_of(r) or 1) for r in records if r.accept_length is not None]
        if not seen:
            return cls()
        return cls(sum(mean * steps for mean, steps in seen) / sum(steps for _, steps in seen), DEFAULT_STRENGTH)

    @property
    def learned(self) -> bool:
        """Whether training saw acceptance data."""
        return self.strength > UNSUPPORTED_STRENGTH

    def priors(
        self,
        requests: Sequence[PromptRequest],
        *,
        draft: str | None = None,
        max_correct_drafts: int | None = None,
        rows: Floats | None = None,
    ) -> list[AcceptancePrior]:
        """Return the one prior for every request."""
        mean = self.mean if max_correct_drafts is None else min(self.mean, max_correct_drafts + 1.0)
        prior = AcceptancePrior(mean, self.strength, PosteriorSettings(), max_correct_drafts, mean, self.strength)
        return [prior] * len(requests)

    def to_state(self, with_features: bool = True) -> State:
        """Return the two numbers."""
        return State(self.kind, {"mean": self.mean, "strength": self.strength})

    @classmethod
    def from_state(cls, state: State, features: FeatureSet | None = None) -> Self:
        """Rebuild the prior."""
        strength = number(state.meta, "strength", LEAST_STRENGTH, MOST_STRENGTH)
        return cls(number(state.meta, "mean", 1.0, MOST_TOKENS), strength)
