"""Gradient boosting of a discrete-time hazard with right-censored rows.

The hazard of bucket j for a prompt with features x is

    h_j(x) = sigmoid(a_j + sum_k basis[j, k] f_k(x)),

with a_j the pooled hazard's logit and a few smooth basis functions of log time (``HazardGrid``). One tree
ensemble gives all f_k, so a prompt costs one row, not one row per bucket as when person-bucket rows are stacked
(Singer and Willett 1993; Gensheimer and Narasimhan 2019 use the same likelihood with a neural network). A request
that ended in bucket b adds log h_b + sum_{j<b} log(1 - h_j); one that was cut adds only the buckets it survived.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from laps_sd.predictors.arrays import Bools, Floats, Singles
from laps_sd.predictors.length.buckets import exposure
from laps_sd.predictors.length.hazard_curves import HazardGrid
from laps_sd.predictors.trees import Trees, repeatable

#: Few distinct values are enough; a feature too rare for one leaf size is not dropped beforehand.
_DATA = {"max_bin": 127, "feature_pre_filter": False, "verbosity": -1}


class HazardLoss:
    """Negative log-likelihood of requests on a grid, with the gradients that boosting needs.

    ``base``, shape (n, K), holds scores that are given; what is boosted adds to them.
    Single precision: at 200,000 requests and 32 buckets each pass writes 25 MB.
    """

    def __init__(self, grid: HazardGrid, tokens: Floats, censored: Bools, base: Floats | None = None) -> None:
        events, at_risk = exposure(tokens, censored, grid.edges)
        self._events, self._at_risk = events.astype(np.float32), at_risk.astype(np.float32)
        start = grid.offset if base is None else grid.offset + base @ grid.basis.T
        self._offset, self._basis = start.astype(np.float32), grid.basis.astype(np.float32)

    @property
    def terms(self) -> int:
        """K, the scores per request."""
        return int(self._basis.shape[1])

    def _hazard(self, scores: NDArray[Any]) -> Singles:
        # One output comes as a flat array.
        logits = scores.astype(np.float32).reshape(len(scores), -1) @ self._basis.T
        logits += self._offset
        np.clip(logits, -12.0, 12.0, out=logits)
        np.negative(logits, out=logits)
        np.exp(logits, out=logits)
        logits += 1.0
        np.reciprocal(logits, out=logits)
        hazards: Singles = logits
        return hazards

    def gradients(self, scores: NDArray[Any], _data: object = None) -> tuple[Singles, Singles]:
        """Return gradient and diagonal of the Hessian with respect to the scores, each of shape (n, K)."""
        hazard = self._hazard(scores)
        expected = hazard * self._at_risk
        residual: Singles = expected - self._events
        gradient: Singles = np.matmul(residual, self._basis, dtype=np.float32)
        curvature = (expected * (1.0 - hazard)) @ self._basis**2
        bounded: Singles = np.maximum(curvature, np.float32(1e-6))
        return gradient.reshape(scores.shape), bounded.reshape(scores.shape)

    def value(self, scores: NDArray[Any], _data: object = None) -> tuple[str, float, bool]:
        """Return LightGBM's (name, mean negative log-likelihood, higher is better)."""
        hazard = self._hazard(scores)
        ended = (self._events * np.log(hazard)).sum(axis=1)
        survived = ((self._at_risk - self._events) * np.log1p(-hazard)).sum(axis=1)
        return "hazard_loss", float(-(ended + survived).mean(dtype=np.float64)), False


def fit_linear(columns: Floats, grid: HazardGrid, tokens: Floats, censored: Bools) -> Floats:
    """Return weights, shape (p, K), of scores that are linear in ``columns``, shape (n, p), by maximum likelihood.

    A little ridge (one request's worth) keeps them finite.
    """
    loss, shape = HazardLoss(grid, tokens, censored), (columns.shape[1], grid.basis.shape[1])

    def objective(flat: Floats) -> tuple[float, Floats]:
        scores = columns @ flat.reshape(shape)
        gradient = columns.T @ loss.gradients(scores)[0].astype(np.float64) / len(columns)
        penalty = flat / len(columns)
        return loss.value(scores)[1] + float(penalty @ flat) / 2.0, gradient.ravel() + penalty

    found = minimize(objective, np.zeros(shape[0] * shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 200})
    weights: Floats = found.x.reshape(shape)
    return weights


@dataclass(frozen=True)
class BoostingSettings:
    """Constants of the boosting, chosen on public prompts by grouped cross-validation (docs/predictors.md)."""

    learning_rate: float = 0.08
    num_leaves: int = 15
    min_child_samples: int = 20
    feature_fraction: float = 0.4
    bagging_fraction: float = 0.8
    lambda_l2: float = 5.0
    max_rounds: int = 400
    patience: int = 30

    def parameters(self, terms: int, seed: int) -> dict[str, Any]:
        """Return LightGBM's parameters."""
        return {
            "num_class": terms,
            "learning_rate": self.learning_rate,
            "num_leaves": self.num_leaves,
            "min_child_samples": self.min_child_samples,
            "feature_fraction": self.feature_fraction,
            "bagging_fraction": self.bagging_fraction,
            "bagging_freq": 1,
            "lambda_l2": self.lambda_l2,
            **repeatable(seed),
        }


def boost(
    rows: Floats,
    loss: HazardLoss,
    settings: BoostingSettings,
    seed: int,
    *,
    held_out: tuple[Floats, HazardLoss] | None = None,
    rounds: int | None = None,
) -> Trees:
    """Fit the score functions f_k.

    Parameters
    ----------
    rows : array, shape (n, features)
    loss : HazardLoss
        Loss of the same n requests.
    held_out : (rows, loss), optional
        Other requests; boosting stops when they no longer gain.
    rounds : int, optional
        Boosting rounds; ``settings.max_rounds`` when None.
    """
    data = lgb.Dataset(rows, label=np.zeros(len(rows)), params=_DATA)
    watched: dict[str, Any] = {}
    if held_out is not None:
        check = lgb.Dataset(held_out[0], label=np.zeros(len(held_out[0])), reference=data, params=_DATA)
        stop = lgb.early_stopping(settings.patience, verbose=False)
        watched = {"valid_sets": [check], "feval": held_out[1].value, "callbacks": [stop]}
    parameters = {**settings.parameters(loss.terms, seed), "objective": loss.gradients, "metric": "None"}
    booster = lgb.train(parameters, data, rounds or settings.max_rounds, **watched)
    kept = max(1, booster.best_iteration) if watched else -1
    return Trees(booster.model_to_string(num_iteration=kept), loss.terms)
