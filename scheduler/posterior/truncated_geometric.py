"""Formulas of the truncated geometric law: tokens per verify step of a chain of drafts.

With per-token acceptance α and n drafts, a step accepts k drafts with P(k) = α^k (1 − α) for k < n and P(n) = α^n,
and emits k + 1 tokens (the bonus token included). Hence the mean m(α, n) = (1 − α^(n+1)) / (1 − α) = Σ_{j≤n} α^j
(Leviathan et al. 2023, *Fast Inference from Transformers via Speculative Decoding*, equation 1).
"""

from __future__ import annotations

from functools import lru_cache
from math import acos, cos, exp, lgamma, log, log1p, sqrt


@lru_cache(maxsize=64)
def half_width(level: float) -> float:
    """Return w such that a Student t with 4 degrees of freedom lies in [−w, w] with probability ``level``.

    Closed form: Shaw 2006, *Sampling Student's T distribution*, section 4.
    """
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level}")
    root = sqrt(1.0 - level * level)  # sqrt(4 p (1 − p)) at p = (1 + level) / 2
    return 2.0 * sqrt(cos(acos(root) / 3.0) / root - 1.0)


def mean_tokens(alpha: float, n: int) -> float:
    """Return m(α, n): mean tokens per verify step with ``n`` drafts, bonus token included."""
    total = 1.0
    for _ in range(n):  # Horner: stable at α = 1, where the closed form is 0 / 0
        total = 1.0 + alpha * total
    return total


def tokens_variance(alpha: float, n: int) -> float:
    """Return the variance of the tokens of one verify step: Var(k) under the truncated geometric law.

    E[k²] = Σ_{j=1..n} (2j − 1) P(k ≥ j) with P(k ≥ j) = α^j.
    """
    first = second = 0.0
    power = 1.0
    for j in range(1, n + 1):
        power *= alpha
        first += power
        second += (2 * j - 1) * power
    return max(second - first * first, 0.0)


def acceptance_rate(mean: float, n: int) -> float:
    """Return the α in [0, 1] with m(α, n) = ``mean`` tokens per step (clipped to what is reachable: 1 … n + 1)."""
    if n <= 0 or mean <= 1.0:
        return 0.0
    if mean >= n + 1:
        return 1.0
    # Newton's method on a convex function. It starts at the solution without truncation, which lies left of the root,
    # so it steps over the root at most once and then comes down to it.
    alpha = 1.0 - 1.0 / mean
    for _ in range(60):
        value, slope = 1.0, 0.0
        for _ in range(n):  # Horner, for m and its derivative together
            slope = value + alpha * slope
            value = 1.0 + alpha * value
        step = (value - mean) / slope
        alpha = min(alpha - step, 1.0)
        if abs(step) < 1e-7:  # convergence is quadratic: what is left is about the square of the last step
            break
    return alpha


def beta_cdf(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b), by Lentz's continued fraction.

    Press et al., *Numerical Recipes*, section 6.4.
    """
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _continued_fraction(x, a, b) / a
    return 1.0 - front * _continued_fraction(1.0 - x, b, a) / b


def _continued_fraction(x: float, a: float, b: float) -> float:
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    result = d
    for m in range(1, 400):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + numerator * d
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = 1.0 + numerator / c
            c = c if abs(c) > tiny else tiny
            result *= d * c
        if abs(d * c - 1.0) < 1e-12:
            break
    return result


def beta_quantile(q: float, a: float, b: float) -> float:
    """Return the ``q`` quantile of Beta(a, b), by bisection on :func:`beta_cdf` (error below 1e-9)."""
    low, high = 0.0, 1.0
    for _ in range(32):
        middle = 0.5 * (low + high)
        if beta_cdf(middle, a, b) < q:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)
