"""Fit the cost model of a machine to the rounds that it logged: each step by its batch, each prefill by its tokens.

Latencies are sums of rounds, so the lines go through means. A line that halves relative errors (`cost_fit.fit_line`)
goes through medians, and every hiccup of the machine is then missing from the sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from laps_sd.scheduler.service import SHORTEST_S, CostModel

_DRAWS = 200
#: Fewer rounds of a kind than this give no line.
LEAST_ROUNDS = 8
#: Of all rounds of a kind, the share of the longest that is taken as a pause of the machine: it is left out.
PAUSES = 0.002


@dataclass(frozen=True, slots=True)
class Range:
    """A coefficient and its 95 % interval over drawn rounds."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class RoundFit:
    """A cost model with error bars.

    Attributes
    ----------
    model : CostModel
    step_s, step_s_per_request, prefill_s, prefill_s_per_token : Range
    steps, prefills : int
        Rounds of each kind.
    """

    model: CostModel
    step_s: Range
    step_s_per_request: Range
    prefill_s: Range
    prefill_s_per_token: Range
    steps: int
    prefills: int


def fit_rounds(steps: Sequence[tuple[int, float]], prefills: Sequence[tuple[int, float]], seed: int = 0) -> RoundFit:
    """Fit both lines.

    Parameters
    ----------
    steps : sequence of (int, float)
        Requests in the batch of a decode step, and its seconds.
    prefills : sequence of (int, float)
        Tokens that a prefill computed, and its seconds.

    Raises
    ------
    ValueError
        Too few rounds of either kind.
    """
    if min(len(steps), len(prefills)) < LEAST_ROUNDS:
        raise ValueError(
            f"a cost model needs {LEAST_ROUNDS} decode steps and {LEAST_ROUNDS} prefills; there are {len(steps)} and "
            f"{len(prefills)}"
        )
    decode, prefill = (_without_pauses(np.array(rounds, dtype=float)) for rounds in (steps, prefills))
    rng = np.random.default_rng(seed)
    drawn = np.array([[*_line(_draw(decode, rng)), *_line(_draw(prefill, rng))] for _ in range(_DRAWS)])
    low, high = np.percentile(drawn, (2.5, 97.5), axis=0)
    values = [*_line(decode), *_line(prefill)]
    base, slope, fixed, per_token = (
        Range(float(v), float(a), float(b)) for v, a, b in zip(values, low, high, strict=True)
    )
    model = CostModel(max(base.value, SHORTEST_S), slope.value, 0, fixed.value, per_token.value)
    return RoundFit(model, base, slope, fixed, per_token, len(steps), len(prefills))


def _without_pauses(rounds: np.ndarray) -> np.ndarray:
    return np.asarray(rounds[rounds[:, 1] <= np.quantile(rounds[:, 1], 1 - PAUSES)])


def _draw(rounds: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.asarray(rounds[rng.integers(len(rounds), size=len(rounds))])


def _line(rounds: np.ndarray) -> tuple[float, float]:
    """Least squares with neither base nor slope below 0; a single operating point gives a flat line."""
    x, y = rounds[:, 0], rounds[:, 1]
    spread = x - x.mean()
    variance = float(spread @ spread)
    slope = float(spread @ y) / variance if variance > 0 else 0.0
    base = float(y.mean()) - slope * float(x.mean())
    if slope < 0:
        return float(y.mean()), 0.0
    if base < 0:
        return 0.0, float(x @ y) / float(x @ x)
    return base, slope
