"""Formulas of the truncated geometric law: tokens per verify step of a chain of drafts.

With per-token acceptance α and n drafts, a step accepts k drafts with P(k) = α^k (1 − α) for k < n and P(n) = α^n,
and emits k + 1 tokens (the bonus token included). Hence the mean m(α, n) = (1 − α^(n+1)) / (1 − α) = Σ_{j≤n} α^j
(Leviathan et al. 2023, *Fast Inference from Transformers via Speculative Decoding*, equation 1).
"""

from __future__ import annotations

from functools import lru_cache
from math import acos, cos, sqrt


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
