"""Dirichlet belief about the accept counts k ∈ {0 … n} of a verify step: the general conjugate form, for trees."""

from __future__ import annotations

from laps_sd.scheduler.posterior.base import PosteriorBase
from laps_sd.scheduler.posterior.settings import PosteriorSettings
from laps_sd.scheduler.posterior.truncated_geometric import acceptance_rate


class DirichletPosterior(PosteriorBase):
    """Pseudo-counts over k, seeded with κ steps spread by the truncated geometric law of the prior mean."""

    __slots__ = ("_counts", "_prior_counts", "_temper")

    def __init__(
        self, prior_mean: float, strength: float, settings: PosteriorSettings, max_correct_drafts: int
    ) -> None:
        super().__init__(prior_mean, strength, settings, max_correct_drafts)
        n = max_correct_drafts
        alpha = acceptance_rate(prior_mean, n)
        law = [alpha**k * (1.0 - alpha) for k in range(n)] + [alpha**n]
        self._temper = settings.temper
        self._prior_counts = tuple(strength * settings.temper * p for p in law)
        self._counts = [0.0] * (n + 1)

    def update(self, k: int, n: int) -> None:
        """Learn from one verify step; see `AcceptancePosterior.update`."""
        self._count_step(k, n)
        if n >= len(self._counts):
            self._counts.extend([0.0] * (n + 1 - len(self._counts)))
        if self._discount < 1.0:
            self._counts = [c * self._discount for c in self._counts]
        self._counts[k] += self._temper
        self._follow(k)

    def _keep(self, share: float) -> None:
        self._prior_counts = tuple(count * share for count in self._prior_counts)
        self._counts = [count * share for count in self._counts]

    def mean(self, n: int | None = None) -> float:
        """Return 1 + E[k]; with ``n`` given, longer accepted runs count as ``n``."""
        return 1.0 + self._moments(n)[1]

    def variance(self) -> float:
        # Var(Σ k p_k) under Dirichlet(c) is Var_p(k) / (Σc + 1).
        """Return the variance of that mean; see `AcceptancePosterior.variance`."""
        total, _, spread = self._moments()
        return spread / (total + 1.0)

    def _step_variance(self) -> float:
        return self._moments()[2] / self._temper

    def _moments(self, highest: int | None = None) -> tuple[float, float, float]:
        """Total count, mean and variance of k; counts beyond ``highest`` fold into it."""
        total = first = second = 0.0
        for counts in (self._prior_counts, self._counts):
            for k, count in enumerate(counts):
                value = k if highest is None else min(k, highest)
                total += count
                first += value * count
                second += value * value * count
        mean = first / total
        return total, mean, max(second / total - mean * mean, 0.0)
