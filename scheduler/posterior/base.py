"""What every acceptance posterior can do."""

from __future__ import annotations

from math import sqrt
from typing import Protocol, Self

from laps_sd.scheduler.posterior.settings import PosteriorSettings
from laps_sd.scheduler.posterior.truncated_geometric import half_width


class AcceptancePosterior(Protocol):
    """Belief about one request's accept length: tokens per verify step, the bonus token included."""

    @property
    def steps(self) -> int:
        """Number of verify steps seen."""
        ...

    def update(self, k: int, n: int) -> None:
        """Learn from one verify step: ``k`` drafts were correct out of ``n`` that were really proposed."""
        ...

    def mean(self, n: int | None = None) -> float:
        """Return the expected tokens per verify step with ``n`` drafts (default: as proposed so far)."""
        ...

    def variance(self) -> float:
        """Return the squared scale of the belief about the request's tokens per step (tokens²)."""
        ...

    def steps_per_token(self) -> float:
        """Return E[1/m], the expected verify steps per output token (perceived service multiplies tokens by it)."""
        ...

    def interval(self, level: float = 0.8) -> tuple[float, float]:
        """Return the central credible interval of the request's own tokens per step, drift left out."""
        ...

    def predictive_interval(self, level: float, remaining_steps: float) -> tuple[float, float]:
        """Return the interval that holds the mean of the next ``remaining_steps`` steps with chance ``level``."""
        ...

    def relative_width(self, level: float = 0.8) -> float:
        """Return the width of :meth:`interval` divided by :meth:`mean`."""
        ...

    def stable(self, threshold: float, level: float = 0.8) -> bool:
        """Return whether the relative width fell to ``threshold`` or below: the request is *perceptible*."""
        ...

    def copy(self) -> Self:
        """Return an independent copy."""
        ...


class PosteriorBase:
    """What follows from a mean, the squared scale of the belief about it and the variance between steps.

    Intervals are those of a Student t with 4 degrees of freedom: on all five public runs the rest of a few requests
    is far from what any normal would allow (text that turns into a list, a loop, a copy of the prompt).
    """

    __slots__ = ("_discount", "_drafts", "_drift", "_most", "_steps")

    _steps: int  # verify steps seen
    _drafts: int | None  # drafts of the last step; before the first: the most a step may accept, if known
    _most: int | None  # most drafts that any step proposed: no mean above it plus one

    def __init__(self, settings: PosteriorSettings, max_correct_drafts: int | None) -> None:
        self._discount = settings.discount
        self._drift = settings.drift
        self._steps = 0
        self._drafts = self._most = max_correct_drafts

    @property
    def steps(self) -> int:
        """Verify steps seen."""
        return self._steps

    def update(self, k: int, n: int) -> None:
        """Learn from one verify step; see `AcceptancePosterior.update`."""
        raise NotImplementedError

    def mean(self, n: int | None = None) -> float:
        """Return the expected tokens per step; see `AcceptancePosterior.mean`."""
        raise NotImplementedError

    def variance(self) -> float:
        """Return the variance of that mean; see `AcceptancePosterior.variance`."""
        raise NotImplementedError

    def _step_variance(self) -> float:
        """Variance of the tokens of one step around the request's mean (tokens²)."""
        raise NotImplementedError

    def steps_per_token(self) -> float:
        """Return the expected steps per token; see `AcceptancePosterior.steps_per_token`."""
        mean = self.mean()
        # Second-order Taylor term of E[1/m]; capped at one step per token, since a step emits at least one token.
        return min(1.0, (1.0 + self.variance() / (mean * mean)) / mean)

    def interval(self, level: float = 0.8) -> tuple[float, float]:
        """Return the central interval of the mean; see `AcceptancePosterior.interval`."""
        return self._around_mean(half_width(level) * sqrt(self.variance()))

    def predictive_interval(self, level: float, remaining_steps: float) -> tuple[float, float]:
        """Return the interval of the rest's mean; see `AcceptancePosterior.predictive_interval`."""
        if not remaining_steps > 0:
            raise ValueError(f"remaining_steps must be positive, got {remaining_steps}")
        drift = self._drift * (self.mean() - 1.0)
        spread = self.variance() + self._step_variance() / max(remaining_steps, 1.0) + drift * drift
        return self._around_mean(half_width(level) * sqrt(spread))

    def relative_width(self, level: float = 0.8) -> float:
        """Return the width of the interval over the mean; see `AcceptancePosterior.relative_width`."""
        low, high = self.interval(level)
        return (high - low) / self.mean()

    def stable(self, threshold: float, level: float = 0.8) -> bool:
        """Return whether the interval is narrow enough; see `AcceptancePosterior.stable`."""
        return self.relative_width(level) <= threshold

    def copy(self) -> Self:
        """Return an equal posterior that shares nothing with this one."""
        twin = type(self).__new__(type(self))
        for name in PosteriorBase.__slots__ + type(self).__slots__:
            value = getattr(self, name)
            setattr(twin, name, value.copy() if isinstance(value, list) else value)
        return twin

    def _around_mean(self, width: float) -> tuple[float, float]:
        mean = self.mean()
        high = mean + width
        if self._most is not None:
            high = min(high, self._most + 1.0)
        return max(1.0, mean - width), max(high, mean)

    def _count_step(self, k: int, n: int) -> None:
        if not 0 <= k <= n:
            raise ValueError(f"a verify step accepts between 0 and n drafts, got k={k} of n={n}")
        self._steps += 1
        self._drafts = n
        if self._most is None or n > self._most:
            self._most = n
