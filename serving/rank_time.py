"""How long one ranking takes, read from a server's ``/metrics``."""

import math
import re
from collections.abc import Sequence

_BUCKET = re.compile(r'laps_sd_rank_seconds_bucket\{(?:.*,)?le="([^"]+)"[^}]*\} (\S+)')


def rank_quantiles_us(url: str) -> tuple[float, float] | None:
    """Median and 99th percentile of the microseconds that one ranking took; None when none was counted.

    Raises
    ------
    httpx.HTTPError
        The server does not answer.
    """
    import httpx

    return quantiles_us(httpx.get(f"{url}/metrics", timeout=60).text)


def quantiles_us(exposition: str, quantiles: Sequence[float] = (0.5, 0.99)) -> tuple[float, float] | None:
    """Quantiles in microseconds from Prometheus text, linear inside the histogram's buckets."""
    counts: dict[float, float] = {}
    for edge, count in _BUCKET.findall(exposition):
        counts[float(edge)] = counts.get(float(edge), 0.0) + float(count)
    edges = sorted(counts)
    if not edges or counts[edges[-1]] == 0:
        return None
    p50, p99 = (1e6 * _quantile(edges, counts, q) for q in quantiles)
    return p50, p99


def _quantile(edges: Sequence[float], counts: dict[float, float], q: float) -> float:
    target, below_edge, below = q * counts[edges[-1]], 0.0, 0.0
    for edge in edges:
        if counts[edge] >= target:
            if math.isinf(edge) or counts[edge] == below:
                return below_edge
            return below_edge + (edge - below_edge) * (target - below) / (counts[edge] - below)
        below_edge, below = edge, counts[edge]
    return below_edge
