"""An acceptance predictor: what all finished requests had on average, for every prompt."""

from collections.abc import Sequence
from typing import Any, Self

from laps_sd.data import PromptRequest, RequestRecord
from laps_sd.predictors.acceptance import AcceptanceModel, AcceptancePrior
from laps_sd.predictors.state import State
from laps_sd.scheduler import PosteriorSettings


class Fixed(AcceptanceModel):
    """One mean (tokens per verify step, the bonus token included), believed like 24 verify steps."""

    kind = "fixed"

    def __init__(self, mean: float) -> None:
        self.mean = mean

    @classmethod
    def fit(
        cls, records: Sequence[RequestRecord], features: Any, options: Any, groups: Sequence[str] | None = None
    ) -> Self:
        """Average over the records that say how their drafts fared."""
        means = [record.accept_length for record in records if record.accept_length is not None]
        return cls(sum(means) / len(means) if means else 1.0)

    def priors(
        self,
        requests: Sequence[PromptRequest],
        *,
        draft: str | None = None,
        max_correct_drafts: int | None = None,
        rows: Any = None,
    ) -> list[AcceptancePrior]:
        """Return the belief about each request at its arrival."""
        mean = self.mean if max_correct_drafts is None else min(self.mean, max_correct_drafts + 1.0)
        return [AcceptancePrior(mean, 24.0, PosteriorSettings(), max_correct_drafts, mean, 24.0)] * len(requests)

    def to_state(self, with_features: bool = True) -> State:
        """Return what a bundle keeps."""
        return State(self.kind, {"mean": self.mean})

    @classmethod
    def from_state(cls, state: State, features: Any = None) -> Self:
        """Rebuild in a server, from a bundle."""
        return cls(float(state.meta["mean"]))
