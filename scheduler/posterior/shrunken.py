"""The running mean of tokens per step, shrunk towards the prompt's prior, with variance between steps.

Works for chains and trees alike because it looks at tokens per step only.
"""

from __future__ import annotations

from functools import lru_cache

from laps_sd.scheduler.posterior.base import PosteriorBase
from laps_sd.scheduler.posterior.settings import PosteriorSettings
from laps_sd.scheduler.posterior.truncated_geometric import acceptance_rate, mean_tokens, tokens_variance

_TO_MIDDLE = 0.05


class ShrunkenMeanPosterior(PosteriorBase):
    """Estimate (κ·prior + Σ tokens) / (κ + steps): the posterior mean of a normal model.

    A step's tokens vary with σ² = dispersion · Var(truncated geometric law of the prior mean); the belief about the
    request's mean has the squared scale σ² / (κ + steps), and a mean of R further steps adds σ² / R and the drift
    (Gelman et al., *Bayesian Data Analysis*, 3rd edition, section 2.5, with Student tails).

    Parameters
    ----------
    prior_mean
        Tokens per verify step expected before any step, at least 1.
    strength
        κ, the weight of that prior in verify steps.
    settings, max_correct_drafts
        See :func:`laps_sd.scheduler.posterior.factory.make_posterior`.
    """

    __slots__ = ("_dispersion", "_proposed", "_strength", "_tokens", "_unit_variance", "_weight")

    def __init__(
        self, prior_mean: float, strength: float, settings: PosteriorSettings, max_correct_drafts: int | None = None
    ) -> None:
        super().__init__(prior_mean, strength, settings, max_correct_drafts)
        self._strength = strength
        # Solving for α costs more than the rest of a new request's state together, and a thousandth of a token is far
        # below what a prior can know: priors share their variances.
        self._dispersion = settings.dispersion
        self._unit_variance = settings.dispersion * _shared_variance(round(prior_mean, 3), max_correct_drafts)
        self._weight = 0.0  # discounted number of steps
        self._tokens = 0.0  # discounted sum of tokens
        self._proposed = 0.0  # discounted sum of proposed drafts

    def update(self, k: int, n: int) -> None:
        """Learn from one verify step; see `AcceptancePosterior.update`."""
        self._count_step(k, n)
        discount = self._discount
        self._weight = self._weight * discount + 1.0
        self._tokens = self._tokens * discount + (k + 1.0)
        self._proposed = self._proposed * discount + n
        self._follow(k)

    def _keep(self, share: float) -> None:
        self._strength *= share
        self._weight *= share
        self._tokens *= share
        self._proposed *= share
        # How much steps vary depends on the mean, which is another one now.
        self._unit_variance = self._dispersion * _shared_variance(round(self.mean(), 2), self._most)

    def mean(self, n: int | None = None) -> float:
        """Return the expected tokens per step; see `AcceptancePosterior.mean`."""
        mean = (self._strength * self._expected + self._tokens) / (self._strength + self._weight)
        if n is None:
            return mean
        seen = round(self._proposed / self._weight) if self._weight > 0.0 else self._drafts
        if seen is None or n == seen:
            return mean
        return mean_tokens(acceptance_rate(mean, seen), n)

    def variance(self) -> float:
        """Return the variance of that mean; see `AcceptancePosterior.variance`."""
        return self._unit_variance / (self._strength + self._weight)

    def _step_variance(self) -> float:
        return self._unit_variance


@lru_cache(maxsize=16_384)
def _shared_variance(mean: float, n: int | None) -> float:
    return geometric_variance(mean, n)


def geometric_variance(mean: float, n: int | None) -> float:
    """Return the variance of one step's tokens under the geometric law with this mean, truncated at ``n`` drafts.

    With ``n`` unknown the law is not truncated: α = 1 − 1/mean and the variance is α / (1 − α)² = mean · (mean − 1).
    The mean is moved a little towards the middle first: a prior of "never accepts" or "always accepts" must not make
    the belief infinitely sure of itself.
    """
    if n is None:
        mean += _TO_MIDDLE
        return mean * (mean - 1.0)
    mean += _TO_MIDDLE * (1.0 + n / 2 - mean)
    return tokens_variance(acceptance_rate(mean, n), n)
