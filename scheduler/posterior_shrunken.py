"""The running mean of tokens per step, shrunk towards the prompt's prior: a normal model with estimated variance.

Works for chains and trees alike because it looks at tokens per step only.
"""

from __future__ import annotations

from typing import Self

from laps_sd.scheduler.posterior_base import PosteriorBase, PosteriorSettings
from laps_sd.scheduler.posterior_math import acceptance_rate, mean_tokens, tokens_variance


class ShrunkenMeanPosterior(PosteriorBase):
    """Estimate (κ·prior + Σ tokens) / (κ + steps), with between-step variance.

    Parameters
    ----------
    prior_mean
        Tokens per verify step expected before any step, at least 1.
    strength
        κ, the weight of that prior in verify steps.
    settings, max_correct_drafts
        See :func:`laps_sd.scheduler.posterior.make_posterior`.
    """

    __slots__ = ("_noise_steps", "_prior", "_prior_noise", "_squares", "_strength", "_tokens", "_weight")

    def __init__(
        self, prior_mean: float, strength: float, settings: PosteriorSettings, max_correct_drafts: int | None = None
    ) -> None:
        super().__init__(settings, max_correct_drafts)
        self._prior = prior_mean
        self._strength = strength
        self._noise_steps = settings.noise_steps
        n = max_correct_drafts if max_correct_drafts is not None else 8
        self._prior_noise = tokens_variance(acceptance_rate(prior_mean, n), n)
        self._weight = 0.0  # discounted number of steps
        self._tokens = 0.0  # discounted sum of tokens
        self._squares = 0.0  # discounted sum of squared tokens

    def update(self, k: int, n: int) -> None:
        self._count_step(k, n)
        tokens = k + 1.0
        discount = self._discount
        self._weight = self._weight * discount + 1.0
        self._tokens = self._tokens * discount + tokens
        self._squares = self._squares * discount + tokens * tokens

    def mean(self, n: int | None = None) -> float:
        mean = (self._strength * self._prior + self._tokens) / (self._strength + self._weight)
        if n is None or self._drafts is None or n == self._drafts:
            return mean
        return mean_tokens(acceptance_rate(mean, self._drafts), n)

    def variance(self) -> float:
        spread = self._step_variance() / (self._temper * (self._strength + self._weight))
        return spread + self._drift_variance(self.mean())

    def _step_variance(self) -> float:
        mean = self.mean()
        own = self._squares - 2 * mean * self._tokens + self._weight * mean * mean
        return (self._noise_steps * self._prior_noise + max(own, 0.0)) / (self._noise_steps + self._weight)

    def copy(self) -> Self:
        twin = type(self).__new__(type(self))
        for name in PosteriorBase.__slots__ + ShrunkenMeanPosterior.__slots__:
            setattr(twin, name, getattr(self, name))
        return twin
