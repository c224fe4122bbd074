"""The distribution of one request's output length, as a survival curve that answers by table lookup.

Everything a scheduler asks about the length follows from S(t) = P(L > t): conditioning on the tokens produced so
far replaces any rule for "the prediction was too short, now what?".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import erfc, inf, log
from operator import lt

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Most edges of a curve: it travels with every request, inside SGLang's custom_params.
MAX_EDGES = 40
#: The largest edge that is believed, in tokens.
MAX_TOKENS = 2**31
#: Survival never vanishes: a request may outlive every curve, and is then in its geometric tail.
_FLOOR = 1e-9


class SurvivalCurve:
    """P(output length > t tokens), linear between edges and geometric beyond the last one.

    Parameters
    ----------
    edges : array of int, shape (B + 1,)
        Tokens, strictly increasing, the first is 0; between 2 and 40 of them.
    survival : array of float, shape (B + 1,)
        S at each edge; the first is 1, never increasing, never negative.

    Raises
    ------
    ValueError
        When the arrays are not such a curve.

    Notes
    -----
    Beyond the last edge the hazard per token is that of the last bucket, yet never below 1 / last edge: a request
    that outlived its curve is expected to need at most as much again as the curve covers.

    >>> curve = SurvivalCurve([0, 100], [1.0, 0.5])
    >>> curve.survive(50)
    0.75
    """

    __slots__ = ("_beyond", "_cap", "_edges", "_expected", "_horizon", "_survival", "_tail_hazard")

    def __init__(self, edges: ArrayLike, survival: ArrayLike) -> None:
        self._edges, self._survival = _checked(edges, survival)
        self._tail_hazard = _tail_hazard(self._edges, self._survival)
        # Filled at first use: the process that predicts sends the curve on and asks it nothing.
        self._expected: list[float] = []
        self._horizon: list[int] = []
        self._cap, self._beyond = MAX_TOKENS, 0.0  # the last limit asked about, and the sum of S beyond it

    @classmethod
    def batch(cls, edges: NDArray[np.int64], survival: NDArray[np.float64]) -> list[SurvivalCurve]:
        """Return one curve per row of ``survival``, shape (n, B + 1), all with the same ``edges``.

        For values that a model computed: where they start off 1, increase or are negative, they are made to fit. A
        value that is not a number is a ValueError, and so are edges that the constructor would refuse.
        """
        points, rows = _fitted(edges, survival)
        return [cls._trusted(points, row) for row in rows]

    @classmethod
    def _trusted(cls, edges: list[int], survival: list[float]) -> SurvivalCurve:
        """Return the curve of values that have been checked; curves may share ``edges``, which never change."""
        curve = cls.__new__(cls)
        curve._edges, curve._survival = edges, survival
        curve._tail_hazard = _tail_hazard(edges, survival)
        curve._expected, curve._horizon = [], []
        curve._cap, curve._beyond = MAX_TOKENS, 0.0
        return curve

    @classmethod
    def exponential(cls, mean: float, edges: Sequence[int] | None = None) -> SurvivalCurve:
        """Return the memoryless curve with this mean (tokens): whoever knows nothing else expects always the same."""
        points = np.asarray(edges if edges is not None else np.unique(np.geomspace(1, 8 * mean + 8, 32).astype(int)))
        points = np.unique(np.concatenate([[0], points]))
        return cls(points, (1 - 1 / max(mean, 1.0)) ** points)

    @classmethod
    def lognormal(cls, median: float, sigma: float, n_edges: int = 32) -> SurvivalCurve:
        """Return the curve of a log-normal length (tokens) with this median and standard deviation of its log."""
        if not (median > 0 and sigma >= 0):
            raise ValueError(f"a log-normal length needs median > 0 and sigma >= 0, got {median} and {sigma}")
        # Edges at the quantiles carry the shape with few numbers.
        sigma = max(sigma, 0.02)
        points = median * np.exp(sigma * np.linspace(-3.2, 3.2, n_edges - 1))
        points = np.unique(np.clip(np.rint(points), 1, MAX_TOKENS))
        upper_tail = [0.5 * erfc(log(t / median) / (sigma * 2**0.5)) for t in points]
        return cls([0, *points], [1.0, *upper_tail])

    @property
    def edges(self) -> NDArray[np.int64]:
        """Bucket edges in tokens."""
        return np.array(self._edges, dtype=np.int64)

    @property
    def survival(self) -> NDArray[np.float64]:
        """P(L > edge) at each edge."""
        return np.array(self._survival)

    def survive(self, t: float) -> float:
        """P(L > t)."""
        if t <= 0:
            return 1.0
        edges, survival = self._edges, self._survival
        if t >= edges[-1]:
            beyond = float((1 - self._tail_hazard) ** (t - edges[-1]))
            return max(survival[-1] * beyond, 1e-300)
        i = bisect_right(edges, t) - 1
        left = edges[i]
        return survival[i] + (survival[i + 1] - survival[i]) * (t - left) / (edges[i + 1] - left)

    def going_on(self, times: NDArray[np.float64], g: int = 0) -> NDArray[np.float64]:
        """P(L > t | L > g) at many times t >= g, tokens; far beyond the last edge too, where P(L > g) is no number."""
        last = self._edges[-1]
        beyond = (1 - self._tail_hazard) ** np.maximum(times - max(last, g), 0.0)
        if g >= last:
            return np.asarray(beyond, dtype=np.float64)
        inside = np.interp(times, self._edges, self._survival)
        values: NDArray[np.float64] = inside * beyond / self.survive(g)
        return values

    def mean(self, g: int = 0, cap: int | None = None) -> float:
        """Expected remaining tokens, E[min(L, cap) - g | L > g].

        Parameters
        ----------
        g : int
            Tokens produced so far.
        cap : int, optional
            The client's limit on output tokens; None: no limit.

        Returns
        -------
        float
            At least 1 (a request that still runs needs one more token); 0 when ``g`` has reached ``cap``.
        """
        if cap is not None and g >= cap:
            return 0.0
        return self._mean(self._sum_from(g), self.survive(g), cap)

    def quantile(self, q: float, g: int = 0) -> float:
        """Remaining tokens r with P(L <= g + r | L > g) = q, for 0 <= q < 1."""
        if not 0 <= q < 1:
            raise ValueError(f"a quantile needs 0 <= q < 1, got {q}")
        target = (1 - q) * self.survive(g)
        edges, survival = self._edges, self._survival
        if target < survival[-1] or g >= edges[-1]:
            start = max(edges[-1], g)
            return start - g + log(self.survive(start) / target) / -log(1 - self._tail_hazard)
        i = max(bisect_right(edges, g) - 1, 0)
        while survival[i + 1] > target:
            i += 1
        step = survival[i] - survival[i + 1]
        t = edges[i] + (edges[i + 1] - edges[i]) * ((survival[i] - target) / step if step > 0 else 0.0)
        return max(t - g, 0.0)

    def gittins(self, g: int = 0, cap: int | None = None) -> float:
        """Gittins index of the remaining tokens: the least, over horizons D, of E[min(R, D)] / P(R <= D).

        Lower goes first. Equals the mean where the hazard never falls, and is below it where a request may end soon
        although its mean is large (Gittins, Glazebrook and Weber 2011, chapter 2; Scully and Harchol-Balter 2018).
        """
        if cap is not None and g >= cap:
            return 0.0
        edges, survival = self._edges, self._survival
        here, alive = self._sum_from(g), self.survive(g)
        best = self._mean(here, alive, cap)
        if g >= edges[-1]:
            return best
        i = bisect_right(edges, g) - 1
        horizon = self._horizon or self._best_horizons()
        # The hazard rises inside a bucket, so the best horizon ends at an edge: the next one, or that of a neighbour.
        for j in (i + 1, horizon[i], horizon[i + 1]):
            if i < j < len(edges) and (cap is None or edges[j] < cap):
                ends = alive - survival[j]
                if ends > 0:
                    best = min(best, (here - self._expected[j]) / ends)
        return max(best, 1.0)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SurvivalCurve):
            return NotImplemented
        return self._edges == other._edges and self._survival == other._survival

    def __hash__(self) -> int:
        return hash((tuple(self._edges), tuple(self._survival)))

    def __repr__(self) -> str:
        return f"SurvivalCurve(mean={self.mean():.1f} tokens, edges 0..{self._edges[-1]})"

    def _mean(self, here: float, alive: float, cap: int | None) -> float:
        """Expected tokens up to ``cap`` of a request that is ``alive`` with ``here`` as the sum of S from there on."""
        if cap is not None and cap < MAX_TOKENS:
            if cap != self._cap:  # a request's limit stays what it was
                self._cap, self._beyond = cap, self._sum_from(cap)
            here -= self._beyond
        return max(1.0, here / alive)

    def _sum_from(self, g: int) -> float:
        """Sum of S(t) over t = g, g + 1, …: expected tokens beyond ``g``, times the chance to get there."""
        if g == 0:  # where every request starts
            return (self._expected or self._sums())[0]
        edges = self._edges
        if g >= edges[-1]:
            return self.survive(g) / self._tail_hazard
        i = bisect_right(edges, g) - 1
        expected = self._expected or self._sums()
        return expected[i + 1] + _bucket_sum(self.survive(g), self._survival[i + 1], edges[i + 1] - g)

    def _sums(self) -> list[float]:
        edges, survival = self._edges, self._survival
        sums = [survival[-1] / self._tail_hazard]
        for i in range(len(edges) - 2, -1, -1):
            sums.append(sums[-1] + _bucket_sum(survival[i], survival[i + 1], edges[i + 1] - edges[i]))
        self._expected = sums[::-1]
        return self._expected

    def _best_horizons(self) -> list[int]:
        """For each edge the edge at which its Gittins horizon ends; the last index means never."""
        sums, survival = np.array(self._expected or self._sums()), np.array(self._survival)
        spent = sums[:, None] - sums[None, :]
        ends = survival[:, None] - survival[None, :]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(np.triu(ends > 0, k=1), spent / ends, inf)
        self._horizon = [int(j) for j in ratio.argmin(axis=1)]
        return self._horizon


def _bucket_sum(left: float, right: float, width: int) -> float:
    """Sum of the linear S over ``width`` tokens, from S = left on, up to but without S = right."""
    return width * left - (left - right) * (width - 1) / 2


def _checked(edges: ArrayLike, survival: ArrayLike) -> tuple[list[int], list[float]]:
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


def _fitted(edges: NDArray[np.int64], survival: NDArray[np.float64]) -> tuple[list[int], list[list[float]]]:
    """Return the edges and, for each row of ``survival``, values that start at 1 and never increase."""
    points = _whole_edges(edges)
    levels = np.maximum(survival, _FLOOR)
    levels[:, 0] = 1.0
    np.minimum.accumulate(levels, axis=1, out=levels)
    if levels.shape[1:] != edges.shape or np.isnan(levels[:, -1]).any():  # accumulate hands a NaN on to the last
        raise ValueError("survival needs as many values as there are edges, all of them numbers")
    rows: list[list[float]] = levels.tolist()
    return points, rows


def _tail_hazard(edges: list[int], survival: list[float]) -> float:
    """Return the chance to end at each token beyond the last edge: that of the last bucket, at least 1 / last edge."""
    width = edges[-1] - edges[-2]
    per_token = 1 - float((survival[-1] / survival[-2]) ** (1 / width))
    return min(max(per_token, 1 / max(edges[-1], 2)), 1 - 1e-6)


def _whole_edges(edges: NDArray[np.int64]) -> list[int]:
    points: list[int] = edges.tolist()
    if (
        not 2 <= len(points) <= MAX_EDGES
        or points[0]
        or points[-1] > MAX_TOKENS
        or not all(map(lt, points, points[1:]))
    ):
        raise ValueError(f"edges must be 2 to {MAX_EDGES} whole tokens, strictly increasing from 0")
    return points
