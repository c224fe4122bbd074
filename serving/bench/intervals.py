"""Ratios of two policies with intervals, from requests that both served: a paired bootstrap of blocks.

Requests that arrive one after the other wait in one queue and share its fate, so whole blocks of them are drawn, the
same for both policies (Künsch 1989); each round of the comparison is drawn for itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np

DRAWS = 2000
#: What is compared, of one policy's latencies in a row; each works along the last axis.
STATISTICS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda x: np.mean(x, axis=-1),
    "p50": lambda x: np.percentile(x, 50, axis=-1),
    "p99": lambda x: np.percentile(x, 99, axis=-1),
}


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio and its 95 % interval."""

    ratio: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """How far the interval goes."""
        return self.high - self.low


def paired_ratios(
    ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]], seed: int = 0
) -> dict[str, Ratio] | None:
    """Return the ratio of each of `STATISTICS`, ours over theirs; None where there is nothing to compare.

    Parameters
    ----------
    ours, theirs : sequence of sequence of float
        For each round the latencies of the same requests in the order of their arrival; not a number where a request
        failed, which is then left out of both.
    """
    pairs = []
    for a, b in zip(ours, theirs, strict=True):
        both = np.array([a, b], dtype=float)
        pairs.append(both[:, np.isfinite(both).all(axis=0)])
    pairs = [both for both in pairs if both.shape[1]]
    if not pairs:
        return None
    rng = np.random.default_rng(seed)
    picks = [block_draws(both.shape[1], rng) for both in pairs]
    drawn = [np.concatenate([both[i][pick] for both, pick in zip(pairs, picks, strict=True)], axis=1) for i in (0, 1)]
    whole = np.concatenate(pairs, axis=1)
    ratios = {}
    for name, statistic in STATISTICS.items():
        draws = statistic(drawn[0]) / statistic(drawn[1])
        low, high = np.percentile(draws, (2.5, 97.5))
        ratios[name] = Ratio(float(statistic(whole[0]) / statistic(whole[1])), float(low), float(high))
    return ratios


def block_draws(n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw indices of ``n`` neighbours in blocks of about their square root, round and round; one row a draw."""
    size = ceil(sqrt(n))
    starts = rng.integers(n, size=(DRAWS, ceil(n / size)))
    return ((starts[:, :, None] + np.arange(size)) % n).reshape(DRAWS, -1)[:, :n]
