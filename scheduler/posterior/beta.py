"""Beta belief about the per-token acceptance α of a chain of drafts (truncated geometric likelihood)."""

from __future__ import annotations

from laps_sd.scheduler.posterior.base import PosteriorBase
from laps_sd.scheduler.posterior.settings import PosteriorSettings
from laps_sd.scheduler.posterior.truncated_geometric import mean_tokens, tokens_variance


class TruncatedGeometricPosterior(PosteriorBase):
    """Conjugate update Beta(a, b) → Beta(a + k, b + [k < n]), tempered and discounted.

    The prior's strength κ is given in verify steps; in per-token trials it is κ·E[min(k + 1, n)], because a step
    tries k + 1 tokens when it stops early and n when it does not. Tempered like the likelihood, so that κ keeps
    its meaning: as many steps as the prior is worth.
    """

    __slots__ = ("_a", "_b", "_prior_a", "_prior_b", "_temper")

    def __init__(
        self, prior_mean: float, strength: float, settings: PosteriorSettings, max_correct_drafts: int
    ) -> None:
        super().__init__(prior_mean, strength, settings, max_correct_drafts)
        self._temper = settings.temper
        self._prior_a, self._prior_b = _prior_shape(prior_mean, strength * settings.temper, max_correct_drafts)
        self._a = 0.0  # discounted, tempered accepted drafts
        self._b = 0.0  # discounted, tempered rejections

    def update(self, k: int, n: int) -> None:
        """Learn from one verify step; see `AcceptancePosterior.update`."""
        self._count_step(k, n)
        self._a = self._a * self._discount + self._temper * k
        self._b = self._b * self._discount + (self._temper if k < n else 0.0)
        self._follow(k)

    def _keep(self, share: float) -> None:
        # A prior of nothing would be improper: a hundredth of a trial stays.
        self._prior_a, self._prior_b = max(self._prior_a * share, 0.01), max(self._prior_b * share, 0.01)
        self._a *= share
        self._b *= share

    @property
    def shape(self) -> tuple[float, float]:
        """The parameters (a, b) of the Beta distribution of α."""
        return self._prior_a + self._a, self._prior_b + self._b

    def mean(self, n: int | None = None) -> float:
        """Return E[m(α, n)] = Σ_{j≤n} E[α^j], exact under the Beta."""
        return sum(_power_moments(*self.shape, self._n() if n is None else n))

    def variance(self) -> float:
        """Return the variance of that mean; see `AcceptancePosterior.variance`."""
        n = self._n()
        moments = _power_moments(*self.shape, 2 * n)
        mean = sum(moments[: n + 1])
        # E[m²] = Σ_{i,j≤n} E[α^(i+j)]: the power p occurs min(p, 2n − p) + 1 times.
        second = sum((min(p, 2 * n - p) + 1) * moments[p] for p in range(2 * n + 1))
        return max(second - mean * mean, 0.0)

    def _n(self) -> int:
        return self._drafts if self._drafts is not None else 0

    def _step_variance(self) -> float:
        a, b = self.shape
        return tokens_variance(a / (a + b), self._n()) / self._temper


def _power_moments(a: float, b: float, highest: int) -> list[float]:
    """E[α^p] for p = 0 … highest under Beta(a, b): Π_{i<p} (a + i) / (a + b + i)."""
    moments = [1.0]
    for i in range(highest):
        moments.append(moments[-1] * (a + i) / (a + b + i))
    return moments


def _prior_shape(mean: float, strength: float, n: int) -> tuple[float, float]:
    """Return the (a, b) under which E[m(α, n)] is ``mean`` and the weight is ``strength`` steps of per-token trials.

    E[m] exceeds m(E[α]), so E[α] is searched for; what lies outside the open interval (0, 1) is moved inside it.
    """
    low, high = 1e-4, 1.0 - 1e-4
    for _ in range(30):
        middle = 0.5 * (low + high)
        trials = strength * _trials(middle, n)
        if sum(_power_moments(middle * trials, (1.0 - middle) * trials, n)) < mean:
            low = middle
        else:
            high = middle
    alpha = 0.5 * (low + high)
    trials = strength * _trials(alpha, n)
    return alpha * trials, (1.0 - alpha) * trials


def _trials(alpha: float, n: int) -> float:
    """E[min(k + 1, n)]: tokens that a step tries, at least one to keep a Beta without drafts proper."""
    return max(mean_tokens(alpha, n) - alpha**n, 1.0)
