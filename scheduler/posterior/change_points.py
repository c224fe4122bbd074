"""How likely acceptance changed in mid-request, and since when: Bayes' rule over a few possible change points.

Steps are taken in blocks. Either all come from one mean, or the mean was another one before one of the last few blocks
(Adams and MacKay 2007, *Bayesian Online Changepoint Detection*, with one change at most and a constant hazard). The
likelihoods are those of a normal model whose means are integrated out, so they are closed and the cost is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log1p
from typing import NamedTuple

#: Steps of a block, and the last blocks before each of which a change may lie.
BLOCK, BLOCKS = 8, 8
# Chosen on five public runs and on requests spliced from two (`benchmarks/bench_posterior.py`).
_HAZARD = 0.01  # chance of a change at a step
_NEW_STRENGTH = 3.0  # weight of the prior mean, in steps, in the belief about what came after a change
# Standard deviations of a mean, as shares of the expected mean less one: of requests around their prior beyond its own
# weight, and of what comes after a change.
_OLD_SPREAD, _NEW_SPREAD = 0.1, 0.25


class Segment(NamedTuple):
    """Steps that are thought to have one mean.

    Attributes
    ----------
    steps, tokens : float
        How many, and what they emitted.
    squares : float
        Sum over its blocks of tokens² / steps.
    """

    steps: float
    tokens: float
    squares: float

    def joined(self, other: Segment) -> Segment:
        """Return both together."""
        return Segment(self.steps + other.steps, self.tokens + other.tokens, self.squares + other.squares)


NOTHING = Segment(0.0, 0.0, 0.0)


def block_of(steps: float, tokens: float) -> Segment:
    """Return a segment of one block."""
    return Segment(steps, tokens, tokens * tokens / steps) if steps else NOTHING


class Change(NamedTuple):
    """A change that may have happened.

    Attributes
    ----------
    chance : float
        Of it, given all steps.
    mean : float
        Tokens per step expected since then.
    steps : float
        What that is worth: steps since then, and the prior's.
    """

    chance: float
    mean: float
    steps: float


def possible_changes(
    before: Segment, blocks: Sequence[float], current: Segment, expected: float, strength: float, noise: float
) -> list[Change]:
    """Weigh the possible changes.

    Parameters
    ----------
    before : Segment
        All steps before ``blocks``.
    blocks : sequence of float
        Tokens of each of the last whole blocks, the oldest first.
    current : Segment
        Steps after them: less than a block.
    expected, strength : float
        Prior mean (tokens per step) of the request, and its weight (steps).
    noise : float
        Variance of the tokens of one step (tokens²).

    Returns
    -------
    list of Change
        Chances add up to less than 1: what is missing is the chance that nothing changed.
    """
    if not blocks:
        return []
    noise = max(noise, 1e-3)
    spread = (expected - 1.0) * (expected - 1.0)
    old = noise / max(strength, 1.0) + _OLD_SPREAD * _OLD_SPREAD * spread
    new = _NEW_SPREAD * _NEW_SPREAD * spread + 1e-4
    whole = [block_of(BLOCK, tokens) for tokens in blocks]
    heads = [before]
    for block in whole:
        heads.append(heads[-1].joined(block))
    unchanged = _log_likelihood(heads[-1].joined(current), expected, old, noise)
    since, found, total = current, [], 1.0
    for head, block in zip(reversed(heads[:-1]), reversed(whole), strict=True):
        since = since.joined(block)
        if not head.steps:
            break
        likelihood = _log_likelihood(head, expected, old, noise) + _log_likelihood(since, expected, new, noise)
        # Beyond this nothing is left of "unchanged" in a float.
        weight = BLOCK * _HAZARD * exp(min(likelihood - unchanged, 700.0))
        total += weight
        steps = _NEW_STRENGTH + since.steps
        found.append((weight, (_NEW_STRENGTH * expected + since.tokens) / steps, steps))
    return [Change(weight / total, mean, steps) for weight, mean, steps in found]


def _log_likelihood(segment: Segment, expected: float, variance: float, noise: float) -> float:
    """Return the log density of a segment's blocks, but for what all ways to split them have in common.

    The mean of the segment is normal around ``expected`` with ``variance``; blocks scatter around it with ``noise``.
    """
    steps, tokens, squares = segment
    mean = tokens / steps
    scatter = squares - tokens * mean
    off = mean - expected
    return -0.5 * (scatter / noise + steps * off * off / (noise + steps * variance) + log1p(steps * variance / noise))
