"""What is believed of a request's length once its answer has begun, in place of the prediction of its arrival."""

from __future__ import annotations

from dataclasses import dataclass

from laps_sd.scheduler.survival import SurvivalCurve


@dataclass(frozen=True, slots=True)
class Refinement:
    """A curve that has read the first tokens of an answer.

    Attributes
    ----------
    at : int
        Tokens that were read; at least 1.
    curve : SurvivalCurve
        Distribution of the whole length, tokens; asked only what follows after ``at``.

    Raises
    ------
    ValueError
        When ``at`` is less than 1.
    """

    at: int
    curve: SurvivalCurve

    def __post_init__(self) -> None:
        if self.at < 1:
            raise ValueError(f"a refinement reads at least one token, got {self.at}")

    def left(self, cap: int | None = None) -> float:
        """Expected tokens behind ``at``, under the client's limit ``cap`` of the whole answer; at least 1."""
        return max(self.curve.mean(self.at, cap), 1.0)
