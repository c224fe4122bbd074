"""What every acceptance posterior can do."""

from __future__ import annotations

from math import sqrt
from typing import Protocol, Self

from laps_sd.scheduler.posterior.change_points import (
    BLOCK,
    BLOCKS,
    NOTHING,
    Change,
    block_of,
    possible_changes,
)
from laps_sd.scheduler.posterior.settings import PosteriorSettings
from laps_sd.scheduler.posterior.truncated_geometric import half_width

# When acceptance changes in mid-request: the mean of the last steps is held against what is believed. Chosen on five
# public runs and on requests spliced from two (`benchmarks/bench_posterior.py`).
_RECENT = 0.97  # weight of a step relative to the next one: the last thirty, about
_ENOUGH = 4.0  # discounted steps from which their mean says anything
_DOUBTFUL = 2.5**2  # squared distance, in squared scales, from which the own interval takes the distance in
_SURPRISING = 3.0**2  # and from which what was believed before is given up step by step,
_AT_EASE = 1.0  # until belief and last steps agree so well
_GIVEN_UP = 0.8  # share of the prior and of earlier steps that stays at each of these steps
_STEADY = 0.95  # share of the drift, which was fitted with changes in it, that is left where these are weighed apart


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

    Belief follows a change: discounting alone forgets steps but never the prior, which may be worth more steps than a
    discounted sum can ever hold. When the mean of the last steps is too far from the belief to be chance, the own
    interval widens to reach it, and prior and earlier steps lose weight until both agree again. What is predicted of
    the rest need not wait for that: it averages over the changes that may have happened, each with its chance.

    Intervals are those of a Student t with 4 degrees of freedom: on all five public runs the rest of a few requests
    is far from what any normal would allow (text that turns into a list, a loop, a copy of the prompt).
    """

    __slots__ = (
        "_before", "_block_steps", "_block_tokens", "_blocks", "_changing", "_discount", "_doubt", "_drafts", "_drift",
        "_expected", "_most", "_recent_squares", "_recent_tokens", "_recent_weight", "_steps", "_worth",
    )  # fmt: skip

    _steps: int  # verify steps seen
    _drafts: int | None  # drafts of the last step; before the first: the most a step may accept, if known
    _most: int | None  # most drafts that any step proposed: no mean above it plus one

    def __init__(
        self, prior_mean: float, strength: float, settings: PosteriorSettings, max_correct_drafts: int | None
    ) -> None:
        self._expected, self._worth = prior_mean, strength
        self._discount = settings.discount
        self._drift = settings.drift
        self._steps = 0
        self._drafts = self._most = max_correct_drafts
        self._recent_tokens = self._recent_squares = self._recent_weight = 0.0  # discounted sums over the last steps
        self._changing = False  # whether what was believed before is being given up
        self._blocks: list[float] = []  # tokens of the last whole blocks of steps
        self._block_tokens, self._block_steps = 0.0, 0  # of the block that is not whole yet
        self._before = NOTHING  # the steps before these blocks
        self._doubt = 0.0  # squared distance between belief and last steps beyond what is chance (tokens²)

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

    def _keep(self, share: float) -> None:
        """Keep this share of the weight of the prior and of all steps so far."""
        raise NotImplementedError

    def steps_per_token(self) -> float:
        """Return the expected steps per token; see `AcceptancePosterior.steps_per_token`."""
        mean = self.mean()
        # Second-order Taylor term of E[1/m]; capped at one step per token, since a step emits at least one token.
        return min(1.0, (1.0 + self.variance() / (mean * mean)) / mean)

    def interval(self, level: float = 0.8) -> tuple[float, float]:
        """Return the central interval of the mean; see `AcceptancePosterior.interval`."""
        mean = self.mean()
        return self._within(mean, mean, half_width(level) * sqrt(self.variance() + self._doubt))

    def predictive_interval(self, level: float, remaining_steps: float) -> tuple[float, float]:
        """Return the interval of the rest's mean; see `AcceptancePosterior.predictive_interval`."""
        if not remaining_steps > 0:
            raise ValueError(f"remaining_steps must be positive, got {remaining_steps}")
        mean, noise = self.mean(), self._step_variance()
        rest, drift = noise / max(remaining_steps, 1.0), self._drift
        changes = self._changes(noise)
        if not changes:
            drift *= mean - 1.0
            return self._within(mean, mean, half_width(level) * sqrt(self.variance() + rest + drift * drift))
        drift *= _STEADY
        same = 1.0 - sum(change.chance for change in changes)
        center = same * mean + sum(change.chance * change.mean for change in changes)
        # Variance of a mixture: that of each part, and of their means.
        spread = same * (self.variance() + (drift * (mean - 1.0)) ** 2 + (mean - center) ** 2)
        for change in changes:
            own = noise / change.steps + (drift * (change.mean - 1.0)) ** 2
            spread += change.chance * (own + (change.mean - center) ** 2)
        return self._within(mean, center, half_width(level) * sqrt(spread + rest))

    def _changes(self, noise: float) -> list[Change]:
        """Return the changes that may have happened in the last blocks of steps."""
        if not self._blocks:
            return []
        recent = self._recent_tokens / self._recent_weight
        seen = max(self._recent_squares / self._recent_weight - recent * recent, 0.0)
        current = block_of(self._block_steps, self._block_tokens)
        return possible_changes(self._before, self._blocks, current, self._expected, self._worth, (noise + seen) / 2.0)

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

    def _within(self, mean: float, center: float, width: float) -> tuple[float, float]:
        """Return the interval around ``center`` within what a step can emit; ``mean`` is in it in any case."""
        high = center + width
        if self._most is not None:
            high = min(high, self._most + 1.0)
        return max(1.0, min(center - width, mean)), max(high, mean)

    def _count_step(self, k: int, n: int) -> None:
        if not 0 <= k <= n:
            raise ValueError(f"a verify step accepts between 0 and n drafts, got k={k} of n={n}")
        self._steps += 1
        if n != self._drafts:  # another draft length: what steps emitted before says nothing about a change
            self._recent_tokens = self._recent_squares = self._recent_weight = 0.0
            self._blocks, self._before = [], NOTHING
            self._block_tokens, self._block_steps = 0.0, 0
        self._drafts = n
        if self._most is None or n > self._most:
            self._most = n

    def _follow(self, k: int) -> None:
        """Hold the last steps against the belief, and give up what they contradict; called after each update."""
        tokens = k + 1.0
        self._recent_tokens = self._recent_tokens * _RECENT + tokens
        self._recent_squares = self._recent_squares * _RECENT + tokens * tokens
        self._recent_weight = weight = self._recent_weight * _RECENT + 1.0
        self._block_tokens += tokens
        self._block_steps += 1
        if self._block_steps == BLOCK:
            self._close_block()
        if weight < _ENOUGH:
            return
        recent = self._recent_tokens / weight
        gap = recent - self.mean()
        squared = gap * gap
        # Steps that are all alike are no draw from a law that spreads: what they themselves vary counts half.
        spread = max(self._recent_squares / weight - recent * recent, 0.0)
        chance = (self._step_variance() + spread) / (2.0 * weight) + self.variance()
        self._doubt = squared if squared > _DOUBTFUL * chance else 0.0
        if squared > (_AT_EASE if self._changing else _SURPRISING) * chance:
            self._changing = True
            self._keep(_GIVEN_UP)
        else:
            self._changing = False

    def _close_block(self) -> None:
        self._blocks.append(self._block_tokens)
        self._block_tokens, self._block_steps = 0.0, 0
        if len(self._blocks) > BLOCKS:
            self._before = self._before.joined(block_of(BLOCK, self._blocks.pop(0)))
