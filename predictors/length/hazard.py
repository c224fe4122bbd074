"""The default length estimator: a boosted discrete-time hazard on prompt features, calibrated out-of-fold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laps_sd.data import PromptRequest
from laps_sd.predictors.arrays import Bools, Floats, Ints
from laps_sd.predictors.censoring import normal_scores
from laps_sd.predictors.features.base import feature_set
from laps_sd.predictors.length.boosting import BoostingSettings, HazardLoss, boost, fit_linear
from laps_sd.predictors.length.buckets import log_edges, survival_of
from laps_sd.predictors.length.calibration import Calibration
from laps_sd.predictors.length.estimator import LengthEstimator
from laps_sd.predictors.length.hazard_curves import HazardCurves, HazardGrid, smooth_columns
from laps_sd.predictors.rows import FitOptions, grouped_folds
from laps_sd.predictors.trees import Trees

#: From here on one held-out fold says as much as five, and trees grown on four fifths are as good as on all.
_LARGE = 40_000
#: Below it, or when no feature varies, trees find nothing to split and the linear scores stand alone.
_FEWEST_BOOSTED = 60
#: All rows carry a little further than four fifths of them.
_MORE_ROUNDS = 1.1
#: Share of the linear scores that trees start from: all of it where prompts are few and alike, less where they are
#: of many kinds and trees do better alone. Chosen on two public sets, between 0 and 1.
_TRUST = 0.6


class HazardLength(LengthEstimator):
    """Output length as a survival curve: linear in two smooth scores, refined by boosted trees.

    Parameters
    ----------
    features : str
        Registered feature set.
    encoder : str, optional
        Text encoder, for features that read one; the packaged one when None.
    buckets : int
        Buckets of the length grid.
    terms : int
        Functions of log time that the hazard varies by: 1 level, 2 slope, 3 curvature.
    folds : int
        Inner folds for stacking, early stopping and calibration.
    seed : int
        Seed of everything random.

    Attributes
    ----------
    model_ : HazardCurves
    """

    def __init__(
        self,
        features: str = "lexical",
        encoder: str | None = None,
        buckets: int = 32,
        terms: int = 3,
        folds: int = 5,
        seed: int = 0,
    ) -> None:
        self.features = features
        self.encoder = encoder
        self.buckets = buckets
        self.terms = terms
        self.folds = folds
        self.seed = seed

    def _fit(
        self, requests: list[PromptRequest], tokens: Floats, cut: Bools, groups: NDArray[Any] | None
    ) -> HazardCurves:
        parts = grouped_folds(groups, len(requests), self.folds, self.seed)
        options = FitOptions(self.features, self.encoder, self.seed)
        features, rows = feature_set(self.features).fit(requests, tokens, cut, parts, options)
        grid = HazardGrid.of(tokens, cut, log_edges(tokens, self.buckets), self.terms)
        smooth = smooth_columns(features, rows)
        linear = _TRUST * _fit_scores(smooth, grid, tokens, cut)
        trees, calibration = self._boost(rows, smooth @ linear, grid, tokens, cut, parts)
        return HazardCurves(features, grid, linear, trees, calibration)

    def _boost(
        self, rows: Floats, base: Floats, grid: HazardGrid, tokens: Floats, cut: Bools, parts: Sequence[Ints]
    ) -> tuple[Trees | None, Calibration]:
        """Boost with early stopping fold by fold, then on all rows if few; calibrate on the folds' held-out curves."""
        if len(rows) < _FEWEST_BOOSTED or not np.ptp(rows, axis=0).any():
            return None, Calibration.fit(tokens, cut, survival_of(grid.hazard(base)), grid.edges)
        settings, everyone = BoostingSettings(), np.arange(len(rows))
        checked = parts if len(rows) < _LARGE else parts[:1]
        scores, rounds = np.full_like(base, np.nan), []
        for test in checked:
            train = np.setdiff1d(everyone, test)
            loss, check = (HazardLoss(grid, tokens[i], cut[i], base[i]) for i in (train, test))
            trees = boost(rows[train], loss, settings, self.seed, held_out=(rows[test], check))
            scores[test] = base[test] + trees.raw(rows[test])
            rounds.append(trees.rounds)
        if len(checked) > 1:
            final = max(1, round(_MORE_ROUNDS * float(np.mean(rounds))))
            trees = boost(rows, HazardLoss(grid, tokens, cut, base), settings, self.seed, rounds=final)
        seen = np.concatenate(checked)
        curves = survival_of(grid.hazard(scores[seen]))
        return trees, Calibration.fit(tokens[seen], cut[seen], curves, grid.edges)


def _fit_scores(smooth: Floats, grid: HazardGrid, tokens: Floats, cut: Bools) -> Floats:
    """Fit the linear scores; one whose held-out values order lengths no better than chance gets no weight.

    With a few dozen requests a useless score is often a reversed one: out-of-fold it is below average where its
    target is above. A weight of that sign would turn the order of every request around.
    """
    target = normal_scores(tokens, cut)
    useful = [k == 0 or float(np.cov(smooth[:, k], target)[0, 1]) > 0.0 for k in range(smooth.shape[1])]
    weights = np.zeros((smooth.shape[1], grid.basis.shape[1]))
    weights[useful] = fit_linear(smooth[:, useful], grid, tokens, cut)
    return weights
