"""Token buckets on a logarithmic grid, and the censored counts that every length model starts from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laps_sd.predictors.arrays import Bools, Floats, Ints, shaped
from laps_sd.scheduler.survival import MAX_EDGES, MAX_TOKENS


def log_edges(tokens: NDArray[Any], buckets: int = 32) -> Ints:
    """Return bucket edges for output lengths: 0, then a geometric grid from the shortest to the longest.

    Parameters
    ----------
    tokens : array, shape (n,)
        Output lengths, tokens.
    buckets : int
        Number of buckets aimed at; fewer when the lengths span few integers.

    Returns
    -------
    array of int64, shape (B + 1,)
        Strictly increasing, first 0. Bucket j holds the lengths in ``(edges[j], edges[j + 1]]``.
    """
    lengths = np.maximum(np.asarray(tokens, dtype=np.float64), 1.0)
    low = max(1.0, float(np.quantile(lengths, 0.005)) - 1.0)  # lengths as short as that get a bucket of their own
    high = max(low + 1.0, float(lengths.max()))
    grid = np.rint(np.geomspace(low, high, min(buckets, MAX_EDGES - 1))).astype(np.int64)
    edges: Ints = np.unique(np.concatenate([[0], grid]))
    return edges


def checked_edges(arrays: Mapping[str, NDArray[Any]]) -> Ints:
    """Return the bucket edges of a state.

    Raises
    ------
    ValueError
        They are no edges of a survival curve.
    """
    edges = shaped(arrays, "edges", None, kind=np.int64)
    # Compared and not subtracted: the difference of very large numbers runs over.
    increasing = bool((edges[1:] > edges[:-1]).all())
    if not 2 <= len(edges) <= MAX_EDGES or edges[0] != 0 or not increasing or edges[-1] > MAX_TOKENS:
        raise ValueError(f"its edges are not 2 to {MAX_EDGES} whole tokens, increasing from 0")
    return edges


def bucket_of(tokens: NDArray[Any], edges: Ints) -> Ints:
    """Return the bucket of each length; lengths beyond the last edge belong to the last bucket."""
    index = np.searchsorted(edges, np.maximum(tokens, 1), side="left") - 1
    return np.asarray(np.clip(index, 0, len(edges) - 2), dtype=np.int64)


def exposure(tokens: NDArray[Any], censored: Bools, edges: Ints) -> tuple[Floats, Floats]:
    """Split each request into bucket events and bucket exposures (the person-period form of survival data).

    A request that ended in bucket b was at risk in buckets 0..b and had its event in b. One that was cut in b
    was at risk in 0..b-1 and for the elapsed share of b, and had no event: it is never counted as an ending.

    Returns
    -------
    events, at_risk : arrays, shape (n, B)
        ``events`` is 0/1; ``at_risk`` lies in [0, 1].
    """
    lengths = np.maximum(np.asarray(tokens, dtype=np.float64), 1.0)
    bucket = bucket_of(lengths, edges)
    columns = np.arange(len(edges) - 1)
    events = (columns[None, :] == bucket[:, None]) & ~censored[:, None]
    at_risk = (columns[None, :] < bucket[:, None]).astype(np.float64)
    start, width = edges[bucket], np.diff(edges)[bucket]
    elapsed = np.where(censored, np.clip((lengths - start) / width, 0.0, 1.0), 1.0)
    at_risk[np.arange(len(lengths)), bucket] = elapsed
    return events.astype(np.float64), at_risk


def pooled_hazard(tokens: NDArray[Any], censored: Bools, edges: Ints) -> Floats:
    """Return the pooled hazard of each bucket, shape (B,): the life-table form of the Kaplan-Meier estimate.

    Half an event and one exposure are added to each bucket, so that no hazard is exactly 0 or 1.
    """
    events, at_risk = exposure(tokens, censored, edges)
    hazard = (events.sum(axis=0) + 0.05) / (at_risk.sum(axis=0) + 0.1)
    clipped: Floats = np.clip(hazard, 1e-5, 1.0 - 1e-5)
    return clipped


def survival_of(hazard: Floats) -> Floats:
    """Turn hazards, shape (..., B), into survival at the edges, shape (..., B + 1), first 1."""
    survival = np.zeros((*hazard.shape[:-1], hazard.shape[-1] + 1))
    np.cumsum(np.log1p(-hazard), axis=-1, out=survival[..., 1:])
    np.exp(survival, out=survival)
    return survival


def quantiles(survival: Floats, edges: Ints, q: float) -> Floats:
    """Return the q-quantile of each curve, shape (n,), tokens; beyond the last edge the last edge.

    ``survival`` has shape (n, B + 1); linear inside buckets, like ``SurvivalCurve.quantile``.
    """
    target = 1.0 - q
    last = survival.shape[1] - 1
    right = np.clip((survival > target).sum(axis=1), 1, last)
    row = np.arange(len(survival))
    high, low = survival[row, right - 1], survival[row, right]
    share = np.clip((high - target) / np.maximum(high - low, 1e-12), 0.0, 1.0)
    tokens: Floats = edges[right - 1] + share * (edges[right] - edges[right - 1])
    return tokens
