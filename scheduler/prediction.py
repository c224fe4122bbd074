"""What the predictors say about a request at its arrival, and how it travels with the request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from laps_sd.scheduler.survival import SurvivalCurve

Wire = dict[str, float | list[float]]


@dataclass(frozen=True, slots=True)
class Prediction:
    """Length distribution and acceptance prior of one request.

    Attributes
    ----------
    length : SurvivalCurve
        Distribution of the output length in tokens.
    accept_length : float
        Prior mean of the tokens per verify step, the bonus token included; at least 1.
    accept_strength : float
        Weight of that prior, in verify steps; positive.

    Raises
    ------
    ValueError
        When the prior is out of bounds.
    """

    length: SurvivalCurve
    accept_length: float = 1.0
    accept_strength: float = 1.0

    def __post_init__(self) -> None:
        if not (isfinite(self.accept_length) and 1 <= self.accept_length <= 1e4):
            raise ValueError(f"accept_length must be 1 to 10,000 tokens per step, got {self.accept_length}")
        if not (isfinite(self.accept_strength) and 0 < self.accept_strength <= 1e6):
            raise ValueError(f"accept_strength must be positive and at most 1e6 steps, got {self.accept_strength}")

    @property
    def steps(self) -> float:
        """Expected verify steps of the whole request."""
        return self.length.mean() / self.accept_length

    def to_wire(self) -> Wire:
        """Return JSON scalars and lists only: what SGLang's ``custom_params`` lets through."""
        return {
            "edges": [float(t) for t in self.length.edges],
            "survival": [round(float(s), 6) for s in self.length.survival],
            "accept_length": float(self.accept_length),
            "accept_strength": float(self.accept_strength),
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, object]) -> Prediction:
        """Read what `to_wire` wrote.

        Raises
        ------
        ValueError
            When a key is missing or a value is not a prediction: whatever arrives over the wire is checked.
        """
        try:
            edges, survival = wire["edges"], wire["survival"]
            accept_length, strength = wire["accept_length"], wire["accept_strength"]
        except (KeyError, TypeError) as error:
            raise ValueError("a prediction needs edges, survival, accept_length and accept_strength") from error
        numbers = _numbers([accept_length, strength])
        return cls(SurvivalCurve(_numbers(edges), _numbers(survival)), *numbers)


def _numbers(values: object) -> list[float]:
    if not isinstance(values, (list, tuple)):
        raise ValueError(f"a prediction needs lists of numbers, got {type(values).__name__}")
    if not all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values):
        raise ValueError("a prediction holds something that is not a number")
    try:
        return [float(v) for v in values]
    except OverflowError as error:
        raise ValueError("a prediction holds a whole number that is too large") from error
