"""Beta belief about the per-token acceptance α of a chain of drafts (truncated geometric likelihood)."""

from __future__ import annotations

from typing import Self

from laps_sd.scheduler.posterior_base import PosteriorBase, PosteriorSettings
from laps_sd.scheduler.posterior_math import acceptance_rate, beta_quantile, mean_tokens, tokens_variance


class TruncatedGeometricPosterior(PosteriorBase):
    """Conjugate update Beta(a, b) → Beta(a + k, b + [k < n]), tempered and discounted.

    The prior's strength κ is given in verify steps; in per-token trials it is κ·E[min(k + 1, n)], because a step
    tries k + 1 tokens when it stops early and n when it does not.
    """

    __slots__ = ("_a", "_b", "_prior_a", "_prior_b")

    def __init__(
        self, prior_mean: float, strength: float, settings: PosteriorSettings, max_correct_drafts: int
    ) -> None:
        super().__init__(settings, max_correct_drafts)
        n = max_correct_drafts
        alpha = min(max(acceptance_rate(prior_mean, n), 1e-3), 1.0 - 1e-3)
        trials = strength * settings.temper * (mean_tokens(alpha, n) - alpha**n)
        self._prior_a = alpha * trials
        self._prior_b = (1.0 - alpha) * trials
        self._a = 0.0  # discounted, tempered accepted drafts
        self._b = 0.0  # discounted, tempered rejections

    def update(self, k: int, n: int) -> None:
        self._count_step(k, n)
        self._a = self._a * self._discount + self._temper * k
        self._b = self._b * self._discount + (self._temper if k < n else 0.0)

    @property
    def shape(self) -> tuple[float, float]:
        """The parameters (a, b) of the Beta distribution of α."""
        return self._prior_a + self._a, self._prior_b + self._b

    def mean(self, n: int | None = None) -> float:
        """Return E[m(α, n)] = Σ_{j≤n} E[α^j], exact under the Beta."""
        return sum(self._power_moments(self._n() if n is None else n))

    def variance(self) -> float:
        n = self._n()
        moments = self._power_moments(2 * n)
        mean = sum(moments[: n + 1])
        # E[m²] = Σ_{i,j≤n} E[α^(i+j)]: the power p occurs min(p, 2n − p) + 1 times.
        second = sum((min(p, 2 * n - p) + 1) * moments[p] for p in range(2 * n + 1))
        return max(second - mean * mean, 0.0) + self._drift_variance(mean)

    def interval(self, level: float = 0.8) -> tuple[float, float]:
        if self._drift > 0.0:
            return super().interval(level)
        a, b = self.shape
        n = self._n()
        tail = 0.5 - level / 2
        return mean_tokens(beta_quantile(tail, a, b), n), mean_tokens(beta_quantile(1.0 - tail, a, b), n)

    def _n(self) -> int:
        return self._drafts if self._drafts is not None else 0

    def _power_moments(self, highest: int) -> list[float]:
        """E[α^p] for p = 0 … highest: Π_{i<p} (a + i) / (a + b + i)."""
        a, b = self.shape
        moments = [1.0]
        for i in range(highest):
            moments.append(moments[-1] * (a + i) / (a + b + i))
        return moments

    def _step_variance(self) -> float:
        a, b = self.shape
        return tokens_variance(a / (a + b), self._n())

    def copy(self) -> Self:
        twin = type(self).__new__(type(self))
        for name in PosteriorBase.__slots__ + TruncatedGeometricPosterior.__slots__:
            setattr(twin, name, getattr(self, name))
        return twin
