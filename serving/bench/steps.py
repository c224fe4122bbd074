"""What a policy costs the server: how long its decode steps take at full slots, and what it does in a second.

Seconds of the clock count whatever else the machine does; seconds of the scheduler's processor do not.
"""

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from laps_sd.serving.bench.intervals import Ratio, block_draws
from laps_sd.serving.bench.load import Json
from laps_sd.serving.bench.round_log import read_rounds
from laps_sd.serving.bench.turn import Turn

#: Fewer steps than this say nothing.
LEAST_STEPS = 32


def step_ratios(turns: Sequence[Turn], policies: Sequence[str], slots: int) -> Json:
    """Return for each policy but the first its ratios over the first, each with an interval; None where not measured.

    Returns
    -------
    dict
        By policy: ``step_s`` and ``step_cpu_s``, the mean decode step of a full batch by the clock and by the
        processor of the scheduler; ``steps_per_s``, request steps done in a second while anybody waited.
    """
    steps = {policy: _full_steps(turns, policy, slots) for policy in policies}
    first = steps[policies[0]]
    return {policy: _ratios(steps[policy], first) for policy in policies[1:]}


def _full_steps(turns: Sequence[Turn], policy: str, slots: int) -> np.ndarray:
    """Rows of (seconds, processor seconds) of each decode step of a full batch, and of each round with a queue."""
    rows = []
    for turn in turns:
        if turn.policy == policy and turn.log is not None and turn.log.exists():
            seen = read_rounds(turn.log)
            for line, seconds, cpu_s in seen.timed():
                decode = line["kind"] == "decode"
                rows.append((seconds, cpu_s, line["requests"] if decode else 0, decode and line["requests"] == slots,
                             line["waiting"] > 0))  # fmt: skip
    return np.array(rows, dtype=float).reshape(-1, 5)


def _ratios(ours: np.ndarray, theirs: np.ndarray) -> Json | None:
    full, full_theirs = ours[ours[:, 3] == 1], theirs[theirs[:, 3] == 1]
    if min(len(full), len(full_theirs)) < LEAST_STEPS:
        return None
    busy, busy_theirs = ours[ours[:, 4] == 1], theirs[theirs[:, 4] == 1]
    found: Json = {
        "step_s": asdict(_ratio(full[:, 0], full_theirs[:, 0])),
        "step_cpu_s": asdict(_ratio(full[:, 1], full_theirs[:, 1])),
        "steps_per_s": None,
    }
    if min(len(busy), len(busy_theirs)) >= LEAST_STEPS:
        found["steps_per_s"] = asdict(_ratio(busy[:, 2], busy_theirs[:, 2], busy[:, 0], busy_theirs[:, 0]))
    return found


def _ratio(
    ours: np.ndarray, theirs: np.ndarray, our_s: np.ndarray | None = None, their_s: np.ndarray | None = None
) -> Ratio:
    """Ratio of two means, or of two sums per second, with blocks of neighbouring rounds drawn of each for itself."""
    rng = np.random.default_rng(0)
    a, b = (_draws(x, s, block_draws(len(x), rng)) for x, s in ((ours, our_s), (theirs, their_s)))
    low, high = np.percentile(a / b, (2.5, 97.5))
    whole = [_draws(x, s, np.arange(len(x))[None, :])[0] for x, s in ((ours, our_s), (theirs, their_s))]
    return Ratio(float(whole[0] / whole[1]), float(low), float(high))


def _draws(values: np.ndarray, seconds: np.ndarray | None, picks: np.ndarray) -> np.ndarray:
    if seconds is None:
        return np.asarray(values[picks].mean(axis=1))
    return np.asarray(values[picks].sum(axis=1) / seconds[picks].sum(axis=1))
