"""The fitted refinement: it shifts and stretches the log-odds of a request's own curve by what its answer has said.

Let S be the survival curve of arrival and c the tokens so far. The odds of going on beyond t, S(t) / (S(c) - S(t)), are
the arrival's word on the rest. The refined curve is

    log-odds'(t) = a + b log-odds(t),    b > 0,

with a and log b from trees that read the counts of the answer, followed by one monotone calibration. With a = 0 and
b = 1 it is the arrival curve given the tokens so far: where nothing was learned, nothing changes. A factor b of the
log-odds is a scale of log time and a / b its shift where the rest is log-logistic (Bennett 1983).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

from laps_sd.data.progress.counting import CHECKPOINTS
from laps_sd.predictors.arrays import Floats
from laps_sd.predictors.length.calibration import Calibration
from laps_sd.predictors.progress.columns import NAMES, row_of
from laps_sd.predictors.state import State
from laps_sd.predictors.store import read_folder, write_folder
from laps_sd.predictors.trees import Trees
from laps_sd.scheduler.survival import MAX_TOKENS, SurvivalCurve

#: Log-odds and scores beyond these are certainty.
MOST_LOG_ODDS, MOST_LOG_SCALE = 8.0, 2.0
#: Edges of a refined curve behind the tokens so far.
_EDGES = 30
_SHARES = np.linspace(0.0, 1.0, _EDGES)
_LEAST_CHANCE = 1.0 / (1.0 + exp(MOST_LOG_ODDS))
#: The curve is drawn until so little is left of it.
_LEFT = 0.001
#: Decimals of a refined curve, as of one that comes over the wire: the last bits of exponentials differ between
#: processors, and every rank must order alike.
_DIGITS = 6
_MOST_TABLES, _LONGEST_NAME = 64, 64


class Refiner:
    """Correct curves at checkpoints.

    Parameters
    ----------
    trees : Trees
        Two numbers a row: a and log b.
    calibration : Calibration
        Of the refined survival.
    checkpoints : sequence of int
        Output lengths, tokens, at which held-out answers were predicted better than by the arrival curve.
    tables : sequence of str
        Names of the token-class tables that counted the training data: counts of others are not read.

    Raises
    ------
    ValueError
        The parts do not fit together.
    """

    kind = "refinement"

    def __init__(
        self, trees: Trees, calibration: Calibration, checkpoints: Sequence[int], tables: Sequence[str]
    ) -> None:
        if trees.features != len(NAMES) or trees.outputs != 2:
            raise ValueError(f"a refinement needs trees of {len(NAMES)} features and 2 outputs")
        if not checkpoints or not set(checkpoints) <= set(CHECKPOINTS):
            raise ValueError(f"a refinement needs checkpoints out of {CHECKPOINTS}, got {list(checkpoints)!r:.60}")
        self.trees = trees
        self.calibration = calibration
        self.checkpoints = tuple(checkpoints)
        self.tables = tuple(tables)

    def refine(
        self, curve: SurvivalCurve, checkpoint: int, counts: Sequence[int], accept_length: float | None = None
    ) -> SurvivalCurve | None:
        """Return the curve of a request that has produced ``checkpoint`` tokens; None where it knows no better.

        Parameters
        ----------
        curve : SurvivalCurve
            What was believed at arrival.
        checkpoint : int
            Tokens so far.
        counts : sequence of int
            `laps_sd.data.progress.counting.COUNTERS` after these tokens.
        accept_length : float, optional
            Tokens per verify step so far.

        Returns
        -------
        SurvivalCurve or None
            1 up to ``checkpoint``: it is given that the answer got there.
        """
        if checkpoint not in self.checkpoints:
            return None
        scores = self.trees.raw(row_of(curve, checkpoint, counts, accept_length)[None])
        return refined_curve(curve, checkpoint, scores[0], self.calibration)

    @cached_property
    def name(self) -> str:
        """What tells this refinement from every other: a fingerprint of all that was learned."""
        state = self.to_state()
        told = json.dumps([state.meta, state.texts, {k: v.tolist() for k, v in state.arrays.items()}], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def save(self, path: Path) -> Path:
        """Write it alone to a folder, in the form of a bundle."""
        write_folder(path, {self.kind: self.to_state()}, {})
        return path

    @classmethod
    def load(cls, path: Path) -> Refiner:
        """Read what `save` wrote; InputError when it is damaged."""
        states, _ = read_folder(path)
        return cls.from_state(states[cls.kind])

    def to_state(self) -> State:
        """Return the learned state as plain numbers and text."""
        arrays = {"predicted": self.calibration.predicted, "observed": self.calibration.observed}
        meta = {"checkpoints": list(self.checkpoints), "tables": list(self.tables), "columns": list(NAMES)}
        return State(self.kind, meta, arrays, {"trees": self.trees.text})

    @classmethod
    def from_state(cls, state: State) -> Refiner:
        """Rebuild a fitted refinement; ValueError says what is wrong with the state."""
        if state.meta.get("columns") != list(NAMES):
            raise ValueError("its refinement reads other counts than this laps-sd makes")
        return cls(
            Trees(state.texts["trees"], 2),
            Calibration.from_arrays(state.arrays),
            _checkpoints(state.meta),
            _tables(state.meta),
        )


def refined_curve(curve: SurvivalCurve, checkpoint: int, scores: Floats, calibration: Calibration) -> SurvivalCurve:
    """Return the curve that scores a and log b make of an arrival curve; see the module."""
    times = _times(curve, checkpoint)
    odds = shifted(log_odds(curve, checkpoint, times), scores)
    edges = np.empty(2 + len(times), dtype=np.int64)
    edges[:2], edges[2:] = (0, checkpoint), times
    survival = np.ones((1, len(edges)))
    survival[0, 2:] = np.round(calibration.apply(1.0 / (1.0 + np.exp(-odds))), _DIGITS)
    return SurvivalCurve.batch(edges, survival)[0]


def log_odds(curve: SurvivalCurve, checkpoint: int, times: Floats) -> Floats:
    """Return the log-odds that ``curve`` gives an answer of ``checkpoint`` tokens of going on beyond ``times``."""
    alive = curve.going_on(times, checkpoint)
    alive = np.minimum(np.maximum(alive, _LEAST_CHANCE), 1.0 - _LEAST_CHANCE)  # np.clip costs several times as much
    odds: Floats = np.log(alive / (1.0 - alive))
    return odds


def shifted(odds: Floats, scores: Floats) -> Floats:
    """Return a + b log-odds, shape of ``odds`` (…, n), for scores a and log b, shape (…, 2)."""
    scale = np.exp(np.minimum(np.maximum(scores[..., 1:], -MOST_LOG_SCALE), MOST_LOG_SCALE))
    moved = scores[..., :1] + scale * odds
    bounded: Floats = np.minimum(np.maximum(moved, -4.0 * MOST_LOG_ODDS), 4.0 * MOST_LOG_ODDS)
    return bounded


def _times(curve: SurvivalCurve, checkpoint: int) -> Floats:
    """Return the edges behind ``checkpoint``: a geometric grid from the next token to the end of the curve."""
    furthest = max(curve.quantile(1.0 - _LEFT, checkpoint), 4.0 * _EDGES)
    left = np.rint(np.exp(_SHARES * log(furthest)))
    times = np.minimum(checkpoint + left, float(MAX_TOKENS))
    fresh: Floats = times[np.append(times[1:] > times[:-1], True)]
    return fresh


def _checkpoints(meta: Mapping[str, Any]) -> list[int]:
    found = meta.get("checkpoints")
    if not isinstance(found, list) or any(type(c) is not int for c in found) or sorted(set(found)) != found:
        raise ValueError("its refinement's checkpoints are not whole numbers in order")
    return found


def _tables(meta: Mapping[str, Any]) -> list[str]:
    found = meta.get("tables")
    if not isinstance(found, list) or not 1 <= len(found) <= _MOST_TABLES:
        raise ValueError("its refinement names no token-class tables")
    if any(not isinstance(name, str) or len(name) > _LONGEST_NAME for name in found):
        raise ValueError("its refinement names something else than token-class tables")
    return found
