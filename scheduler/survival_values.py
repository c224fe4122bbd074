"""What the numbers of a survival curve must be: refused where they were sent, made to fit where a model made them."""

from __future__ import annotations

from operator import lt

import numpy as np
from numpy.typing import ArrayLike, NDArray

MAX_EDGES = 40  # the curve travels with every request, inside SGLang's custom_params
MAX_TOKENS = 2**31  # the largest edge that is believed
_FLOOR = 1e-9  # survival never vanishes: a request may outlive every curve, and is then in its geometric tail


def checked(edges: ArrayLike, survival: ArrayLike) -> tuple[list[int], list[float]]:
    """Return edges and survival of one curve as plain numbers; ValueError says what is wrong with them."""
    e, s = np.asarray(edges, dtype=np.float64), np.array(survival, dtype=np.float64)
    if e.ndim != 1 or e.shape != s.shape or not 2 <= len(e) <= MAX_EDGES:
        raise ValueError(f"a survival curve needs 2 to {MAX_EDGES} edges and as many values, got {e.shape}, {s.shape}")
    if not (np.isfinite(e).all() and np.isfinite(s).all()):
        raise ValueError("a survival curve needs finite edges and values")
    if e[0] != 0 or (np.diff(e) <= 0).any() or (e != np.rint(e)).any() or e[-1] > MAX_TOKENS:
        raise ValueError("edges must be whole tokens, strictly increasing from 0")
    if abs(s[0] - 1) > 1e-6 or (np.diff(s) > 1e-9).any() or (s < 0).any():
        raise ValueError("survival must start at 1 and never increase or be negative")
    s[0] = 1.0
    return [int(x) for x in e], [float(x) for x in np.minimum.accumulate(np.maximum(s, _FLOOR))]


def fitted(edges: NDArray[np.int64], survival: NDArray[np.float64]) -> tuple[list[int], list[list[float]]]:
    """Return the edges and, for each row of ``survival``, values that start at 1 and never increase."""
    points = _whole(edges)
    levels = np.maximum(survival, _FLOOR)
    levels[:, 0] = 1.0
    np.minimum.accumulate(levels, axis=1, out=levels)
    if levels.shape[1:] != edges.shape or np.isnan(levels[:, -1]).any():  # accumulate hands a NaN on to the last
        raise ValueError("survival needs as many values as there are edges, all of them numbers")
    rows: list[list[float]] = levels.tolist()
    return points, rows


def tail_hazard(edges: list[int], survival: list[float]) -> float:
    """Return the chance to end at each token beyond the last edge: that of the last bucket, at least 1 / last edge."""
    width = edges[-1] - edges[-2]
    per_token = 1 - float((survival[-1] / survival[-2]) ** (1 / width))
    return min(max(per_token, 1 / max(edges[-1], 2)), 1 - 1e-6)


def _whole(edges: NDArray[np.int64]) -> list[int]:
    points: list[int] = edges.tolist()
    if (
        not 2 <= len(points) <= MAX_EDGES
        or points[0]
        or points[-1] > MAX_TOKENS
        or not all(map(lt, points, points[1:]))
    ):
        raise ValueError(f"edges must be 2 to {MAX_EDGES} whole tokens, strictly increasing from 0")
    return points
