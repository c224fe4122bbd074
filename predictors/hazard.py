"""The default length model: a boosted discrete-time hazard on prompt features, calibrated out-of-fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from laps_sd.data import PromptRequest
from laps_sd.predictors.boosting import BoostingSettings, HazardGrid, HazardLoss, boost, fit_linear
from laps_sd.predictors.buckets import Bools, Floats, Ints, log_edges, survival_of
from laps_sd.predictors.calibration import Calibration
from laps_sd.predictors.features import PromptFeatures
from laps_sd.predictors.folds import grouped_folds
from laps_sd.predictors.length import LengthModel, check_lengths
from laps_sd.predictors.state import State
from laps_sd.predictors.trees import Trees

#: From here on one held-out fold is as telling as five, and five times cheaper.
_LARGE = 40_000


class HazardLength(LengthModel):
    """Output length as a survival curve: linear in two smooth scores, refined by boosted trees.

    Parameters
    ----------
    encoder : str, optional
        Text encoder for the ``embedding`` features; None for the ``lexical`` ones.
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
    features_ : PromptFeatures
    grid_ : HazardGrid
    linear_ : array, shape (3, terms)
        Scores from (1, word_score, smooth_score).
    trees_ : Trees
        Corrections of the scores.
    calibration_ : Calibration
    """

    kind = "hazard"

    def __init__(
        self, encoder: str | None = None, buckets: int = 32, terms: int = 3, folds: int = 5, seed: int = 0
    ) -> None:
        self.encoder = encoder
        self.buckets = buckets
        self.terms = terms
        self.folds = folds
        self.seed = seed

    def fit(
        self,
        X: Sequence[PromptRequest | str],
        y: NDArray[Any] | Sequence[int],
        censored: NDArray[Any] | None = None,
        groups: NDArray[Any] | None = None,
    ) -> Self:
        """Learn from prompts and lengths; see :class:`LengthModel`."""
        requests, tokens, cut = check_lengths(X, y, censored)
        parts = grouped_folds(groups, len(requests), self.folds, self.seed)
        self.features_ = PromptFeatures(encoder=self.encoder, seed=self.seed)
        rows = self.features_.fit_transform(requests, tokens, cut, parts)
        self.edges_ = log_edges(tokens, self.buckets)
        self.grid_ = HazardGrid.of(tokens, cut, self.edges_, self.terms)
        smooth = self._smooth(rows)
        self.linear_ = fit_linear(smooth, self.grid_, tokens, cut)
        self._boost(rows, smooth @ self.linear_, tokens, cut, parts)
        return self

    def _boost(self, rows: Floats, base: Floats, tokens: Floats, cut: Bools, parts: Sequence[Ints]) -> None:
        settings, everyone = BoostingSettings(), np.arange(len(rows))
        judged = parts if len(rows) < _LARGE else parts[:1]
        scores, rounds = np.full_like(base, np.nan), []
        for test in judged:
            train = np.setdiff1d(everyone, test)
            loss, check = (HazardLoss(self.grid_, tokens[i], cut[i], base[i]) for i in (train, test))
            trees, kept = boost(
                rows[train],
                loss,
                self.terms,
                settings,
                self.seed,
                rounds=settings.max_rounds,
                held_out=(rows[test], check),
            )
            scores[test] = base[test] + trees.raw(rows[test])
            rounds.append(kept)
        loss = HazardLoss(self.grid_, tokens, cut, base)
        # All rows carry a little further than four fifths of them.
        final = max(1, round(1.1 * float(np.mean(rounds))))
        self.trees_, self.rounds_ = boost(rows, loss, self.terms, settings, self.seed, rounds=final)
        seen = np.concatenate(judged)
        curves = survival_of(self.grid_.hazard(scores[seen]))
        self.calibration_ = Calibration.fit(tokens[seen], cut[seen], curves, self.edges_)

    def _smooth(self, rows: Floats) -> Floats:
        names = self.features_.names_
        columns = [names.index("word_score"), names.index("smooth_score")]
        return np.column_stack([np.ones(len(rows)), rows[:, columns]])

    def _survival(self, requests: Sequence[PromptRequest]) -> Floats:
        rows = self.features_.transform(requests)
        scores = self._smooth(rows) @ self.linear_ + self.trees_.raw(rows)
        return self.calibration_.apply(survival_of(self.grid_.hazard(scores)))

    def to_state(self) -> State:
        """Return the learned state."""
        features = self.features_.to_state()
        meta = {
            "parameters": {"buckets": self.buckets, "terms": self.terms, "folds": self.folds, "seed": self.seed},
            "boosting": asdict(BoostingSettings()),
            "rounds": self.rounds_,
            "features": dict(features.meta),
        }
        arrays = {
            "edges": self.edges_,
            "offset": self.grid_.offset,
            "basis": self.grid_.basis,
            "linear": self.linear_,
            "predicted": self.calibration_.predicted,
            "observed": self.calibration_.observed,
            **{f"features/{name}": array for name, array in features.arrays.items()},
        }
        return State(self.kind, meta, arrays, {"trees": self.trees_.text, **features.texts})

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Rebuild a fitted model."""
        arrays = state.arrays
        inner = {n.removeprefix("features/"): a for n, a in arrays.items() if n.startswith("features/")}
        features = PromptFeatures.from_state(State("prompt_features", state.meta["features"], inner, state.texts))
        model = cls(encoder=features.encoder, **state.meta["parameters"])
        model.features_, model.rounds_ = features, state.meta["rounds"]
        model.edges_ = arrays["edges"]
        model.grid_ = HazardGrid(arrays["edges"], arrays["offset"], arrays["basis"])
        model.linear_ = arrays["linear"]
        model.trees_ = Trees(state.texts["trees"], model.terms)
        model.calibration_ = Calibration(arrays["predicted"], arrays["observed"])
        return model
