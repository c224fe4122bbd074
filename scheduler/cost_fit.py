"""Fit the cost model of a machine from what its finished requests measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from laps_sd.scheduler.service import SHORTEST_S, CostModel

#: Fewer requests than this fit anything.
LEAST_TIMINGS = 3
#: Where the bulk of the batches (or prompts) spans less than this share of the largest, the measurements are of one
#: operating point, which cannot tell the base of a line from its slope: the line is then taken to be flat.
LEAST_RANGE = 0.25
_ROUNDS = 30


@dataclass(frozen=True, slots=True)
class Timing:
    """One finished request as the server timed it.

    Attributes
    ----------
    prompt_tokens, verify_steps : int
    ttft_s, e2e_s : float
        Seconds from arrival to the first and the last token.
    queue_s : float
        Seconds of ``ttft_s`` spent waiting.
    arrival_s : float, optional
        Seconds on the server's clock. Without it nobody knows what else ran: each request counts as running alone.
    """

    prompt_tokens: int
    verify_steps: int
    ttft_s: float
    e2e_s: float
    queue_s: float = 0.0
    arrival_s: float | None = None


@dataclass(frozen=True, slots=True)
class CostFit:
    """A fitted model and how well it reproduces the measurements.

    Attributes
    ----------
    model : CostModel
    n : int
        Requests used.
    batch_mean, batch_max : float
        Requests that ran together, averaged over the life of each: outside this range τ is extrapolated.
    step_error, prefill_error : float
        Median relative error of the decode and of the prefill time of a request.
    """

    model: CostModel
    n: int
    batch_mean: float
    batch_max: float
    step_error: float
    prefill_error: float


def fit_cost_model(timings: Sequence[Timing], plain: Sequence[Timing] = ()) -> CostFit:
    """Fit the line above the knee of τ(batch) and the line of prefill(tokens), all coefficients non-negative.

    The decode time of a request is its time from first to last token, less the prefills of others that fell into it
    (SGLang prefills first); the batch is the number of requests decoding at a time, averaged over that interval. The
    lines minimise the sum of absolute relative errors (iteratively reweighted least squares): a few requests that hit
    a hiccup do not bend them.

    Parameters
    ----------
    timings : sequence of Timing
        Requests decoded with drafts.
    plain : sequence of Timing, optional
        Requests of the same machine decoded without: their ``verify_steps`` are tokens. Fitted with the same knee
        when there are enough of them.

    Raises
    ------
    ValueError
        When fewer than three requests have a decode time and verify steps.
    """
    used = _usable(timings)
    if len(used) < LEAST_TIMINGS:
        raise ValueError(
            f"a cost model needs {LEAST_TIMINGS} requests with verify_steps, ttft_s and e2e_s; there are {len(used)}"
        )
    prompt = np.array([t.prompt_tokens for t in used], dtype=float)
    prefill_s = np.array([t.ttft_s - t.queue_s for t in used])
    batch, per_step = _steps(used)
    free, base, slope, step_error = _step_line(batch, per_step)
    fixed, per_token = fit_line(prompt, prefill_s)
    without = _usable(plain)
    plain_base: float | None = None
    plain_slope: float | None = None
    if len(without) >= LEAST_TIMINGS:
        plain_batch, plain_step = _steps(without)
        line = fit_line(np.maximum(plain_batch - free, 0.0), plain_step)
        if line[0] + (0 if free else line[1]) >= SHORTEST_S:
            plain_base, plain_slope = line
    return CostFit(
        model=CostModel(base, slope, free, fixed, per_token, plain_base, plain_slope),
        n=len(used),
        batch_mean=float(batch.mean()),
        batch_max=float(batch.max()),
        step_error=step_error,
        prefill_error=_median_relative_error(fixed + per_token * prompt, prefill_s),
    )


def slower_from(cost: CostModel, accept_length: float, most: int) -> int | None:
    """Return the smallest batch, up to ``most``, at which speculation is slower than plain decoding.

    A verify step of τ(batch) emits ``accept_length`` tokens per request, a plain step one. None: at no such batch, or
    the cost model does not know plain decoding.
    """
    for batch in range(1, most + 1):
        plain = cost.plain_tau(batch)
        if plain is not None and cost.tau(batch) > accept_length * plain:
            return batch
    return None


def _usable(timings: Sequence[Timing]) -> list[Timing]:
    return [t for t in timings if t.verify_steps > 0 and t.e2e_s > t.ttft_s >= t.queue_s]


def _steps(timings: Sequence[Timing]) -> tuple[np.ndarray, np.ndarray]:
    """Average batch and seconds per step of each request."""
    decode_s, batch = _decoding(timings)
    return batch, decode_s / np.array([t.verify_steps for t in timings], dtype=float)


def _step_line(batch: np.ndarray, per_step: np.ndarray) -> tuple[int, float, float, float]:
    """Knee, base, slope and error of τ: a knee is assumed where it fits the steps better by 5 %."""
    best: tuple[int, float, float, float] | None = None
    for free in (0, *(2**i for i in range(9) if 2**i < batch.max())):
        beyond = np.maximum(batch - free, 0.0)
        base, slope = fit_line(beyond, per_step)
        if free and base < SHORTEST_S:
            continue  # a line through the knee: no step under it would take time
        error = _median_relative_error(base + slope * beyond, per_step)
        if best is None or error < 0.95 * best[3]:
            best = free, base, slope, error
    assert best is not None
    return best


def _decoding(timings: Sequence[Timing]) -> tuple[np.ndarray, np.ndarray]:
    """Seconds that each request really decoded, and how many decoded beside it on average (itself included)."""
    decode_s = np.array([t.e2e_s - t.ttft_s for t in timings])
    if any(t.arrival_s is None for t in timings):
        return decode_s, np.ones(len(timings))
    arrival = np.array([t.arrival_s for t in timings], dtype=float)
    begin = arrival + np.array([t.ttft_s for t in timings])
    end = arrival + np.array([t.e2e_s for t in timings])
    batch = np.maximum(_Coverage(begin, end).between(begin, end) / (end - begin), 1.0)
    prefills = _union(arrival + np.array([t.queue_s for t in timings]), begin)
    stall_s = _Coverage(*prefills).between(begin, end)
    # A server that overlaps prefill with decoding has no stalls; never explain more than half of the time by them.
    return decode_s - np.minimum(stall_s, 0.5 * decode_s), batch


class _Coverage:
    """Time integral of the number of intervals that cover a moment: piecewise linear."""

    def __init__(self, begin: np.ndarray, end: np.ndarray) -> None:
        times = np.concatenate([begin, end])
        order = np.argsort(times, kind="stable")
        self._times = times[order]
        count = np.cumsum(np.concatenate([np.ones(len(begin)), -np.ones(len(end))])[order])
        self._area = np.concatenate([[0.0], np.cumsum(count[:-1] * np.diff(self._times))])

    def between(self, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Covered seconds, each covering interval counted, between two moments."""
        begun, ended = (np.interp(moment, self._times, self._area) for moment in (begin, end))
        return np.asarray(ended - begun)


def _union(begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Merge overlapping intervals."""
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum.accumulate(end[order])
    fresh = np.concatenate([[True], begin[1:] > end[:-1]])
    return begin[fresh], end[np.concatenate([fresh[1:], [True]])]


def fit_line(x: ArrayLike, y: ArrayLike) -> tuple[float, float]:
    """Return the non-negative intercept and slope of the line with the least absolute relative error.

    Points of about one x (`LEAST_RANGE`) give a flat line: they cannot tell base from slope.
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    low, high = np.quantile(x, (0.05, 0.95))
    if high - low <= LEAST_RANGE * high:
        return float(np.median(y)), 0.0
    scale = np.maximum(np.abs(y), 1e-3 * np.median(np.abs(y)) + 1e-12)
    weight = 1.0 / scale
    base, slope = 0.0, 0.0
    for _ in range(_ROUNDS):
        base, slope = _nonnegative_least_squares(x, y, weight**2)
        residual = np.abs(base + slope * x - y) / scale
        weight = 1.0 / scale / np.sqrt(np.maximum(residual, 1e-4))
    return base, slope


def _nonnegative_least_squares(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> tuple[float, float]:
    """Weighted least squares of y = a + b x; where a or b would be negative the better of a = 0 and b = 0."""
    sw, sx, sy, sxx, sxy = w.sum(), (w * x).sum(), (w * y).sum(), (w * x * x).sum(), (w * x * y).sum()
    determinant = sw * sxx - sx * sx
    if determinant > 0:
        a, b = (sy * sxx - sx * sxy) / determinant, (sw * sxy - sx * sy) / determinant
        if a >= 0 and b >= 0:
            return float(a), float(b)
    candidates = [(max(sy / sw, 0.0), 0.0), (0.0, max(sxy / sxx, 0.0) if sxx > 0 else 0.0)]
    return min(candidates, key=lambda ab: float((w * (ab[0] + ab[1] * x - y) ** 2).sum()))


def _median_relative_error(fitted: np.ndarray, measured: np.ndarray) -> float:
    return float(np.median(np.abs(fitted - measured) / np.maximum(np.abs(measured), 1e-12)))
