"""What every acceptance posterior can do, and the constants they share."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Literal, Protocol, Self

from laps_sd.scheduler.posterior_math import normal_quantile

PosteriorKind = Literal["shrunken", "beta", "dirichlet"]


@dataclass(frozen=True, slots=True)
class PosteriorSettings:
    """Constants of the acceptance posterior; the defaults were fitted on held-out requests (docs/acceptance.md).

    Parameters
    ----------
    kind
        ``shrunken``: running mean shrunk towards the prior, with between-step variance (default; chains and trees).
        ``beta``: Beta over the per-token acceptance of a chain. ``dirichlet``: Dirichlet over accept counts (trees).
    discount
        Weight of a step relative to the next one, in (0, 1]; 1 forgets nothing and makes the order irrelevant.
    temper
        Power of the likelihood in (0, 1]: how many independent steps one observed step is worth when the width of an
        interval is computed (steps of one request are correlated).
    drift
        Standard deviation of the rest's acceptance around the request's own, as a share of the accept length minus
        one (acceptance drifts as the text goes on). 0 for none.
    noise_steps
        Weight, in steps, of the prior guess of the between-step variance against the request's own (``shrunken``).
    """

    kind: PosteriorKind = "shrunken"
    discount: float = 0.98
    temper: float = 0.5
    drift: float = 0.0
    noise_steps: float = 16.0

    def __post_init__(self) -> None:
        if self.kind not in ("shrunken", "beta", "dirichlet"):
            raise ValueError(f"posterior kind must be shrunken, beta or dirichlet, got {self.kind!r}")
        if not 0.0 < self.discount <= 1.0:
            raise ValueError(f"posterior discount must lie in (0, 1], got {self.discount}")
        if not 0.0 < self.temper <= 1.0:
            raise ValueError(f"posterior temper must lie in (0, 1], got {self.temper}")
        if not 0.0 <= self.drift <= 2.0:
            raise ValueError(f"posterior drift must lie in [0, 2], got {self.drift}")
        if not 0.0 < self.noise_steps <= 1e6:
            raise ValueError(f"posterior noise_steps must lie in (0, 1e6], got {self.noise_steps}")


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
        """Return the variance of the belief about the mean tokens per step (tokens²)."""
        ...

    def steps_per_token(self) -> float:
        """Return E[1/m], the expected verify steps per output token (perceived service multiplies tokens by it)."""
        ...

    def interval(self, level: float = 0.8) -> tuple[float, float]:
        """Return the central credible interval of the request's long-run tokens per step."""
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
    """Everything that follows from a mean, its variance and the variance between steps."""

    __slots__ = ("_discount", "_drafts", "_drift", "_steps", "_temper")

    _steps: int  # verify steps seen
    _drafts: int | None  # most drafts a step may accept, as last proposed; None: not known yet

    def __init__(self, settings: PosteriorSettings, max_correct_drafts: int | None) -> None:
        self._discount = settings.discount
        self._temper = settings.temper
        self._drift = settings.drift
        self._steps = 0
        self._drafts = max_correct_drafts

    @property
    def steps(self) -> int:
        return self._steps

    def update(self, k: int, n: int) -> None:
        raise NotImplementedError

    def mean(self, n: int | None = None) -> float:
        raise NotImplementedError

    def variance(self) -> float:
        raise NotImplementedError

    def _step_variance(self) -> float:
        """Variance of the tokens of one step around the request's mean (tokens²)."""
        raise NotImplementedError

    def steps_per_token(self) -> float:
        mean = self.mean()
        # Second-order Taylor term of E[1/m]; capped at one step per token, since a step emits at least one token.
        return min(1.0, (1.0 + self.variance() / (mean * mean)) / mean)

    def interval(self, level: float = 0.8) -> tuple[float, float]:
        return self._around_mean(normal_quantile(level) * sqrt(self.variance()))

    def predictive_interval(self, level: float, remaining_steps: float) -> tuple[float, float]:
        if not remaining_steps > 0:
            raise ValueError(f"remaining_steps must be positive, got {remaining_steps}")
        spread = self._step_variance() / (self._temper * remaining_steps)
        spread = min(spread, self._step_variance()) if remaining_steps >= 1 else self._step_variance()
        return self._around_mean(normal_quantile(level) * sqrt(self.variance() + spread))

    def relative_width(self, level: float = 0.8) -> float:
        low, high = self.interval(level)
        return (high - low) / self.mean()

    def stable(self, threshold: float, level: float = 0.8) -> bool:
        return self.relative_width(level) <= threshold

    def _around_mean(self, half_width: float) -> tuple[float, float]:
        mean = self.mean()
        high = mean + half_width
        if self._drafts is not None:
            high = min(high, self._drafts + 1.0)
        return max(1.0, mean - half_width), high

    def _count_step(self, k: int, n: int) -> None:
        if not 0 <= k <= n:
            raise ValueError(f"a verify step accepts between 0 and n drafts, got k={k} of n={n}")
        self._steps += 1
        self._drafts = n

    def _drift_variance(self, mean: float) -> float:
        return (self._drift * (mean - 1.0)) ** 2
