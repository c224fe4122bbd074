"""Learn the refinement from finished requests whose answers were counted, on top of held-out arrival curves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray

from laps_sd.data import RequestRecord, group_names
from laps_sd.predictors.arrays import Bools, Floats, Ints
from laps_sd.predictors.length.calibration import Calibration
from laps_sd.predictors.progress.refiner import MOST_LOG_SCALE, Refiner, shifted
from laps_sd.predictors.progress.rows import Rows, counted
from laps_sd.predictors.rows import grouped_folds
from laps_sd.predictors.trees import Trees, repeatable
from laps_sd.scheduler import SurvivalCurve

#: Fewer counted answers than this teach nothing that holds for others.
FEWEST_ANSWERS = 100
#: Fewer at one checkpoint do not show whether it helps there.
_FEWEST_ROWS = 50
#: More say no more, and every one of them must be predicted by a model that has not seen it.
_MOST_ANSWERS = 15_000
#: Counts of a tokenizer with fewer answers than this are left out.
_FEWEST_OF_TABLE = 50
_FOLDS, _ARRIVAL_FOLDS = 5, 3
#: All rows carry a little further than four fifths of them.
_MORE_ROUNDS = 1.1
#: How many standard errors the held-out gain of a checkpoint must exceed 0 by.
_SURE = 1.0

#: From records to learn from and records to predict to the curves of the latter.
PredictHeldOut = Callable[[Sequence[RequestRecord], Sequence[RequestRecord]], list[SurvivalCurve]]


@dataclass(frozen=True)
class RefinementSettings:
    """Constants of the boosting, chosen on public answers by grouped cross-validation (docs/refinement.md)."""

    learning_rate: float = 0.05
    num_leaves: int = 15
    num_leaves_few: int = 7
    few_rows: int = 10_000
    min_child_samples: int = 30
    feature_fraction: float = 0.4
    bagging_fraction: float = 0.8
    lambda_l2: float = 15.0
    max_rounds: int = 250
    patience: int = 15

    def parameters(self, rows: int, seed: int) -> dict[str, Any]:
        """Return LightGBM's parameters."""
        return {
            "num_class": 2,
            "learning_rate": self.learning_rate,
            "num_leaves": self.num_leaves_few if rows < self.few_rows else self.num_leaves,
            "min_child_samples": self.min_child_samples,
            "feature_fraction": self.feature_fraction,
            "bagging_fraction": self.bagging_fraction,
            "bagging_freq": 1,
            "lambda_l2": self.lambda_l2,
            **repeatable(seed),
        }


class RefinementLoss:
    """Negative log-likelihood of where answers ended, given scores a and log b.

    With o the log-odds of the arrival curve at the end of an answer and e = a + b o, the refined survival there is
    sigmoid(e) and its density a constant times b sigmoid(e) sigmoid(-e); whoever was cut adds the survival alone.
    """

    def __init__(self, rows: Rows, chosen: Ints) -> None:
        self._odds, self._ended = rows.odds[chosen], ~rows.censored[chosen]

    def gradients(self, scores: NDArray[Any], _data: object = None) -> tuple[Floats, Floats]:
        """Return gradient and a positive diagonal of the Hessian (Fisher's) with respect to the scores."""
        flat = np.asarray(scores, dtype=np.float64).reshape(-1, 2)
        scaled = np.exp(np.clip(flat[:, 1], -MOST_LOG_SCALE, MOST_LOG_SCALE)) * self._odds
        alive = _alive(self._odds, flat)
        slope = np.where(self._ended, 2.0 * alive - 1.0, alive - 1.0)
        bend = alive * (1.0 - alive) * np.where(self._ended, 2.0, 1.0)
        gradient = np.column_stack([slope, slope * scaled - self._ended])
        curvature = np.column_stack([bend + 1e-3, bend * scaled**2 + 0.5])
        return gradient.reshape(scores.shape), curvature.reshape(scores.shape)

    def values(self, scores: NDArray[Any]) -> Floats:
        """Return the loss of each row, a constant of its own left out."""
        flat = np.asarray(scores, dtype=np.float64).reshape(-1, 2)
        moved = shifted(self._odds[:, None], flat)[:, 0]
        log_scale = np.clip(flat[:, 1], -MOST_LOG_SCALE, MOST_LOG_SCALE)
        ending = np.where(self._ended, np.logaddexp(0.0, moved) - log_scale, 0.0)
        loss: Floats = np.logaddexp(0.0, -moved) + ending
        return loss

    def value(self, scores: NDArray[Any], _data: object = None) -> tuple[str, float, bool]:
        """Return LightGBM's (name, mean loss, higher is better)."""
        return "refinement_loss", float(self.values(scores).mean()), False


def fit_refiner(records: Sequence[RequestRecord], predict: PredictHeldOut, seed: int = 0) -> Refiner | None:
    """Learn a refinement.

    Parameters
    ----------
    records : sequence of RequestRecord
        Finished requests with prompt text; those without counts of this version are left out.
    predict : callable
        Learns what is predicted at arrival from its first argument and returns the curves of its second: the curves
        that are corrected must be as wrong as those of requests to come.
    seed : int
        Of splits and learners.

    Returns
    -------
    Refiner or None
        None where fewer than `FEWEST_ANSWERS` answers were counted, or held-out answers were predicted no better.
    """
    chosen = _chosen(records, seed)
    if len(chosen) < FEWEST_ANSWERS:
        return None
    rows = Rows.of(chosen, _held_out_curves(chosen, records, predict, seed))
    groups = np.array(group_names(chosen))[rows.owner]
    parts = grouped_folds(groups, len(rows), _FOLDS, seed)
    scores, rounds = _held_out_scores(rows, parts, seed)
    checkpoints = helpful_checkpoints(rows, scores)
    if not checkpoints:
        return None
    everyone = np.arange(len(rows))
    trees = _boost(rows, everyone, seed, rounds=max(1, round(_MORE_ROUNDS * float(np.mean(rounds)))))
    kept = np.isin(rows.checkpoint, checkpoints)
    return Refiner(
        trees, _calibration(rows, scores, kept), checkpoints, sorted({str(r.progress_table) for r in chosen})
    )


def helpful_checkpoints(rows: Rows, scores: Floats) -> list[int]:
    """Return the checkpoints at which held-out ``scores``, shape (n, 2), predict better than the arrival curve."""
    everyone = np.arange(len(rows))
    loss = RefinementLoss(rows, everyone)
    gain = loss.values(np.zeros_like(scores)) - loss.values(scores)
    helpful = []
    for checkpoint in np.unique(rows.checkpoint).tolist():
        own = gain[rows.checkpoint == checkpoint]
        if len(own) >= _FEWEST_ROWS and own.mean() > _SURE * own.std() / len(own) ** 0.5:
            helpful.append(checkpoint)
    return helpful


def _chosen(records: Sequence[RequestRecord], seed: int) -> list[RequestRecord]:
    """Return the records to learn from: counted, of tokenizers with enough of them, and not too many."""
    found = [r for r in records if counted(r)]
    answers = Counter(r.progress_table for r in found)
    found = [r for r in found if answers[r.progress_table] >= _FEWEST_OF_TABLE]
    if len(found) > _MOST_ANSWERS:
        share = len(found) // _MOST_ANSWERS + 1
        found = [found[i] for i in grouped_folds(np.array(group_names(found)), len(found), share, seed)[0]]
    return found


def _held_out_curves(
    chosen: Sequence[RequestRecord], records: Sequence[RequestRecord], predict: PredictHeldOut, seed: int
) -> list[SurvivalCurve]:
    """Predict the chosen records by models that saw none of their groups; those not chosen teach in every fold."""
    own = {id(r) for r in chosen}
    rest = [r for r in records if r.own_length and id(r) not in own]
    names = group_names([*chosen, *rest])
    curves: dict[int, SurvivalCurve] = {}
    for test in grouped_folds(np.array(names[: len(chosen)]), len(chosen), _ARRIVAL_FOLDS, seed):
        held_out = {names[i] for i in test}
        others = [r for r, name in zip([*chosen, *rest], names, strict=True) if name not in held_out]
        curves.update(zip(test.tolist(), predict(others, [chosen[i] for i in test]), strict=True))
    return [curves[i] for i in range(len(chosen))]


def _held_out_scores(rows: Rows, parts: Sequence[Ints], seed: int) -> tuple[Floats, list[int]]:
    """Return scores of every row from trees that saw none of its group, and the boosting rounds of each fold."""
    scores, rounds = np.zeros((len(rows), 2)), []
    for test in parts:
        train = np.setdiff1d(np.arange(len(rows)), test)
        trees = _boost(rows, train, seed, held_out=test)
        scores[test] = trees.raw(rows.columns[test])
        rounds.append(trees.rounds)
    return scores, rounds


def _boost(rows: Rows, train: Ints, seed: int, *, held_out: Ints | None = None, rounds: int | None = None) -> Trees:
    settings, loss = RefinementSettings(), RefinementLoss(rows, train)
    options = {"max_bin": 127, "feature_pre_filter": False, "verbosity": -1}
    data = lgb.Dataset(rows.columns[train], label=np.zeros(len(train)), params=options)
    watched: dict[str, Any] = {}
    if held_out is not None:
        check = lgb.Dataset(rows.columns[held_out], label=np.zeros(len(held_out)), reference=data, params=options)
        stop = lgb.early_stopping(settings.patience, verbose=False)
        watched = {
            "valid_sets": [check],
            "feval": RefinementLoss(rows, held_out).value,
            "callbacks": [stop],
        }
    parameters = {**settings.parameters(len(train), seed), "objective": loss.gradients, "metric": "None"}
    booster = lgb.train(parameters, data, rounds or settings.max_rounds, **watched)
    kept = max(1, booster.best_iteration) if watched else -1
    return Trees(booster.model_to_string(num_iteration=kept), 2)


def _calibration(rows: Rows, scores: Floats, kept: Bools) -> Calibration:
    return Calibration.of_residuals(1.0 - _alive(rows.odds, scores)[kept], rows.censored[kept])


def _alive(odds: Floats, scores: Floats) -> Floats:
    """Return the refined survival where each answer ended, of the arrival's log-odds there and scores, shape (n, 2)."""
    alive: Floats = 1.0 / (1.0 + np.exp(-shifted(odds[:, None], scores)[:, 0]))
    return alive
