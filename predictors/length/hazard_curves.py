"""The fitted hazard model: features, linear scores, trees, calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from laps_sd.data import PromptRequest
from laps_sd.predictors.arrays import Bools, Floats, Ints, shaped
from laps_sd.predictors.features.base import FeatureSet, nested_features, nested_state
from laps_sd.predictors.length.buckets import checked_edges, pooled_hazard, survival_of
from laps_sd.predictors.length.calibration import Calibration
from laps_sd.predictors.length.curves import CurveModel
from laps_sd.predictors.rows import FitOptions
from laps_sd.predictors.state import State
from laps_sd.predictors.trees import Trees


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

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> HazardGrid:
        """Rebuild the grid from the arrays of a state; ValueError where they are none."""
        edges = checked_edges(arrays)
        buckets = len(edges) - 1
        return cls(edges, shaped(arrays, "offset", buckets), shaped(arrays, "basis", buckets, None))

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
    features : FeatureSet
    grid : HazardGrid
    linear : array, shape (1 + s, K)
        Weights of 1 and the features' s score columns in the scores.
    trees : Trees or None
        Corrections of the scores; None where training had too few rows for any.
    calibration : Calibration
    """

    kind = "hazard"
    reads_features = True

    def __init__(
        self, features: FeatureSet, grid: HazardGrid, linear: Floats, trees: Trees | None, calibration: Calibration
    ) -> None:
        self.features: FeatureSet = features
        self.grid = grid
        self.linear = linear
        self.trees = trees
        self.calibration = calibration
        self.edges = grid.edges

    @classmethod
    def fit(
        cls,
        requests: Sequence[PromptRequest],
        tokens: Floats,
        censored: Bools,
        groups: NDArray[Any] | None,
        options: FitOptions,
    ) -> Self:
        """Learn; see :meth:`CurveModel.fit`."""
        from laps_sd.predictors.length.hazard import HazardLength  # not above: it needs scikit-learn

        estimator = HazardLength(features=options.features, encoder=options.encoder, seed=options.seed)
        return cast(Self, estimator.fit(requests, tokens, censored, groups).model_)

    def survival(self, requests: Sequence[PromptRequest]) -> Floats:
        """Return calibrated survival at the edges."""
        return self.survival_of_rows(self.features.rows(requests))

    def survival_of_rows(self, rows: Floats) -> Floats:
        """Return calibrated survival, shape (n, B + 1), of rows of the features."""
        scores = smooth_columns(self.features, rows) @ self.linear
        if self.trees is not None:
            scores += self.trees.raw(rows)
        return self.calibration.apply(survival_of(self.grid.hazard(scores)))

    def to_state(self) -> State:
        """Return the learned state."""
        features = nested_state(self.features)
        arrays = {
            "edges": self.edges,
            "offset": self.grid.offset,
            "basis": self.grid.basis,
            "linear": self.linear,
            "predicted": self.calibration.predicted,
            "observed": self.calibration.observed,
            **features.arrays,
        }
        trees = {} if self.trees is None else {"trees": self.trees.text}
        return State(self.kind, features.meta, arrays, {**features.texts, **trees})

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Rebuild a fitted model."""
        arrays = state.arrays
        features = nested_features(state)
        if features is None:
            raise ValueError("it holds no features")
        grid = HazardGrid.from_arrays(arrays)
        terms = grid.basis.shape[1]
        trees = Trees(state.texts["trees"], terms) if "trees" in state.texts else None
        if trees is not None and trees.features != len(features.names):
            raise ValueError(f"its trees read {trees.features} features, there are {len(features.names)}")
        return cls(
            features,
            grid,
            shaped(arrays, "linear", 1 + len(features.score_columns), terms),
            trees,
            Calibration.from_arrays(arrays),
        )


def smooth_columns(features: FeatureSet, rows: Floats) -> Floats:
    """Return 1 and the features' score columns, which the scores are linear in, shape (n, 1 + s)."""
    chosen = features.score_columns
    columns = np.ones((len(rows), 1 + len(chosen)))
    for place, column in enumerate(chosen, 1):
        columns[:, place] = rows[:, column]
    return columns
