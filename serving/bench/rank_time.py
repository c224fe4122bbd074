"""How long one ranking takes, read from a server's ``/metrics``."""

import math
from collections.abc import Mapping, Sequence

from laps_sd.data.collection.server import access, address_of
from laps_sd.serving.process.exposition import samples_of

#: Rankings that took at most so many seconds, cumulative over the server's life.
Counts = Mapping[float, float]


def rank_counts(url: str, api_key: str | None = None) -> Counts:
    """Return what a server has counted so far; nothing where it exports no metrics or does not answer."""
    import httpx

    try:
        answer = httpx.get(f"{url}/metrics", timeout=60, **access(address_of(url), api_key))
        return counts_in(answer.text)
    except (httpx.HTTPError, ValueError):
        return {}


def counts_in(exposition: str) -> Counts:
    """Read the counts out of Prometheus text, all processes together; ValueError where it is none."""
    counts: dict[float, float] = {}
    for name, labels, value in samples_of(exposition):
        if name == "laps_sd_rank_seconds_bucket":
            edge = float(labels["le"])
            counts[edge] = counts.get(edge, 0.0) + value
    return counts


def quantiles_us(
    counts: Counts, since: Counts | None = None, quantiles: Sequence[float] = (0.5, 0.99)
) -> tuple[float, float] | None:
    """Median and 99th percentile in microseconds, linear inside the histogram's buckets; None when none was counted.

    Parameters
    ----------
    since : mapping, optional
        Counts at the beginning: what was counted before is not looked at.
    """
    mine = {edge: count - (since or {}).get(edge, 0.0) for edge, count in counts.items()}
    edges = sorted(mine)
    if not edges or mine[edges[-1]] <= 0:
        return None
    p50, p99 = (1e6 * _quantile(edges, mine, q) for q in quantiles)
    return p50, p99


def _quantile(edges: Sequence[float], counts: Counts, q: float) -> float:
    target, below_edge, below = q * counts[edges[-1]], 0.0, 0.0
    for edge in edges:
        if counts[edge] >= target:
            if math.isinf(edge) or counts[edge] == below:
                return below_edge
            return below_edge + (edge - below_edge) * (target - below) / (counts[edge] - below)
        below_edge, below = edge, counts[edge]
    return below_edge
