"""The fitted hazard model: features, linear scores, trees, calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from laps_sd.data import PromptRequest
from laps_sd.predictors.buckets import Bools, Floats, Ints, pooled_hazard, survival_of
from laps_sd.predictors.features.matrix import FeatureMap
from laps_sd.predictors.length.calibration import Calibration
from laps_sd.predictors.length.curves import CurveModel
from laps_sd.predictors.state import State
from laps_sd.predictors.trees import Trees
from laps_sd.scheduler import SurvivalCurve


@dataclass(frozen=True)
class HazardGrid:
    """Buckets, pooled hazard and time basis: what turns scores f(x) into hazards.

    h_j(x) = sigmoid(offset_j + sum_k basis[j, k] f_k(x)).

    Attributes
    ----------
    edges : array of int64, shape (B + 1,)
        Tokens.
    offset : array, shape (B,)
        Logits of the pooled hazard.
    basis : array, shape (B, K)
        Basis functions of log time at the buckets: level, slope, curvature.
    """

    edges: Ints
    offset: Floats
    basis: Floats

    @classmethod
    def of(cls, tokens: Floats, censored: Bools, edges: Ints, terms: int) -> HazardGrid:
        """Estimate the pooled hazard and scale log time by the spread of the observed lengths."""
        hazard = pooled_hazard(tokens, censored, edges)
        log_time = np.log(edges[1:].astype(np.float64))
        ended = np.log(tokens[~censored])
        u = np.clip((log_time - ended.mean()) / (2.0 * ended.std() + 1e-6), -1.5, 1.5)
        columns = [np.ones_like(u), u, 2.0 * u**2 - 1.0]
        return cls(edges, np.log(hazard / (1.0 - hazard)), np.column_stack(columns[:terms]))

    def hazard(self, scores: Floats) -> Floats:
        """Return hazards, shape (n, B), of scores, shape (n, K)."""
        logits = scores @ self.basis.T
        logits += self.offset
        np.maximum(logits, -12.0, out=logits)  # np.clip costs several times as much on one row
        np.minimum(logits, 12.0, out=logits)
        np.negative(logits, out=logits)
        np.exp(logits, out=logits)
        logits += 1.0
        hazards: Floats = np.reciprocal(logits, out=logits)
        return hazards


class HazardCurves(CurveModel):
    """Survival curves from features.

    Parameters
    ----------
    features : FeatureMap
    grid : HazardGrid
    linear : array, shape (3, K)
        Weights of (1, word_score, smooth_score) in the scores.
    trees : Trees or None
        Corrections of the scores; None where training had too few rows for any.
    calibration : Calibration
    """

    kind = "hazard"

    def __init__(
        self, features: FeatureMap, grid: HazardGrid, linear: Floats, trees: Trees | None, calibration: Calibration
    ) -> None:
        self.features = features
        self.grid = grid
        self.linear = linear
        self.trees = trees
        self.calibration = calibration
        self.edges = grid.edges

    def survival(self, requests: Sequence[PromptRequest]) -> Floats:
        """Return calibrated survival at the edges."""
        return self._survival_of(self.features.rows(requests))

    def curves_of(self, rows: Floats) -> list[SurvivalCurve]:
        """Return one survival curve per row of ``features.rows``."""
        return SurvivalCurve.batch(self.edges, self._survival_of(rows))

    def _survival_of(self, rows: Floats) -> Floats:
        scores = smooth_columns(self.features, rows) @ self.linear
        if self.trees is not None:
            scores += self.trees.raw(rows)
        return self.calibration.apply(survival_of(self.grid.hazard(scores)))

    def to_state(self) -> State:
        """Return the learned state."""
        features = self.features.to_state()
        arrays = {
            "edges": self.edges,
            "offset": self.grid.offset,
            "basis": self.grid.basis,
            "linear": self.linear,
            "predicted": self.calibration.predicted,
            "observed": self.calibration.observed,
            **{f"features/{name}": array for name, array in features.arrays.items()},
        }
        trees = {} if self.trees is None else {"trees": self.trees.text}
        return State(self.kind, {"features": features.meta}, arrays, {**trees, **features.texts})

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Rebuild a fitted model."""
        arrays = state.arrays
        inner = {n.removeprefix("features/"): a for n, a in arrays.items() if n.startswith("features/")}
        grid = HazardGrid(arrays["edges"], arrays["offset"], arrays["basis"])
        return cls(
            FeatureMap.from_state(State("features", state.meta["features"], inner, state.texts)),
            grid,
            arrays["linear"],
            Trees(state.texts["trees"], grid.basis.shape[1]) if "trees" in state.texts else None,
            Calibration(arrays["predicted"], arrays["observed"]),
        )


def smooth_columns(features: FeatureMap, rows: Floats) -> Floats:
    """Return (1, word_score, smooth_score), the columns that the scores are linear in, shape (n, 3)."""
    columns = np.ones((len(rows), 3))
    columns[:, 1] = rows[:, features.word_column]
    columns[:, 2] = rows[:, -1]
    return columns
