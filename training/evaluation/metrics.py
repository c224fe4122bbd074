"""How good predicted length curves are: order, error, intervals, and all of it with censoring."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import kendalltau, spearmanr

from laps_sd.predictors.arrays import Bools, Floats, Ints
from laps_sd.predictors.censoring import kaplan_meier
from laps_sd.predictors.length.buckets import quantiles
from laps_sd.predictors.length.calibration import survival_at

#: Pairs grow with the square of the rows; beyond these many a fixed random part is compared.
_MOST_PAIRED = 8_000
_PINBALL_LEVELS = np.arange(1, 10) / 10.0

KEYS = (
    "n",
    "n_ended",
    "kendall_tau",
    "spearman",
    "mae_tokens",
    "log_mae",
    "median_relative_error",
    "c_index",
    "pinball",
    "integrated_brier",
    "coverage_80",
    "width_80_tokens",
)


def length_metrics(tokens: Floats, censored: Bools, survival: Floats, edges: Ints) -> dict[str, Any]:
    """Compare curves with what happened.

    Parameters
    ----------
    tokens : array, shape (n,)
        Output lengths, tokens; where censored, the length at the cut.
    censored : array of bool, shape (n,)
    survival : array, shape (n, B + 1)
        Predicted P(length > edge).
    edges : array of int64, shape (B + 1,)

    Returns
    -------
    dict
        ``KEYS``. The point estimate is the median. Everything but ``n``, ``c_index`` and ``integrated_brier`` is
        over the ``n_ended`` requests that ended by themselves, which are the shorter ones where many were cut; a
        figure that cannot be computed (one request, a constant prediction's order) is None.
    """
    ended = ~censored
    actual, median = tokens[ended], quantiles(survival[ended], edges, 0.5)
    low, high = np.floor(quantiles(survival[ended], edges, 0.1)), np.ceil(quantiles(survival[ended], edges, 0.9))
    if not len(actual):
        return {**dict.fromkeys(KEYS), "n": len(tokens), "n_ended": 0}
    error = np.abs(median - actual)
    logs = np.abs(np.log(np.maximum(median, 1.0)) - np.log(actual))
    values = {
        "kendall_tau": kendall_tau(median, actual),
        "spearman": _order(spearmanr, median, actual),
        "mae_tokens": float(error.mean()),
        "log_mae": float(logs.mean()),
        "median_relative_error": float(np.median(error / actual)),
        "c_index": c_index(quantiles(survival, edges, 0.5), tokens, censored),
        "pinball": float(np.mean([_pinball(survival[ended], edges, actual, level) for level in _PINBALL_LEVELS])),
        "integrated_brier": integrated_brier(tokens, censored, survival, edges),
        "coverage_80": float(((actual >= low) & (actual <= high)).mean()),
        "width_80_tokens": float((high - low).mean()),
    }
    return {"n": len(tokens), "n_ended": len(actual), **values}


def kendall_tau(predicted: ArrayLike, actual: ArrayLike) -> float | None:
    """Return Kendall's τ-b between two rankings, from -1 to 1; None where it has none (one value, a constant)."""
    return _order(kendalltau, np.asarray(predicted), np.asarray(actual))


def _order(statistic: Any, predicted: NDArray[Any], actual: NDArray[Any]) -> float | None:
    if len(actual) < 2 or np.ptp(predicted) == 0 or np.ptp(actual) == 0:
        return None
    value = float(statistic(predicted, actual).statistic)
    return value if math.isfinite(value) else None


def _pinball(survival: Floats, edges: Ints, actual: Floats, level: float) -> float:
    """Mean pinball loss of one quantile, tokens (Koenker and Bassett 1978)."""
    gap = actual - quantiles(survival, edges, level)
    return float(np.maximum(level * gap, (level - 1.0) * gap).mean())


def c_index(predicted: Floats, tokens: Floats, censored: Bools) -> float | None:
    """Return Harrell's concordance: the share of comparable pairs in the right order, ties counting half.

    A pair is comparable when the shorter of the two ended by itself.
    """
    if len(tokens) > _MOST_PAIRED:
        kept = np.random.default_rng(0).choice(len(tokens), _MOST_PAIRED, replace=False)
        predicted, tokens, censored = predicted[kept], tokens[kept], censored[kept]
    right = ties = pairs = 0.0
    for i in np.flatnonzero(~censored):
        longer = (tokens > tokens[i]) | ((tokens == tokens[i]) & censored)
        longer[i] = False
        others = predicted[longer]
        pairs += len(others)
        right += float((others > predicted[i]).sum())
        ties += float((others == predicted[i]).sum())
    return (right + ties / 2.0) / pairs if pairs else None


def integrated_brier(tokens: Floats, censored: Bools, survival: Floats, edges: Ints) -> float | None:
    """Return the Brier score of P(length > t), averaged over log t (Graf et al. 1999).

    Requests that were cut before t are weighted out by the Kaplan-Meier estimate of not being cut. The range of t
    is that in which most lengths fall: the 5th to the 95th percentile.
    """
    low, high = np.quantile(tokens[~censored], [0.05, 0.95])
    if not low < high:
        return None
    cut_times, uncut = kaplan_meier(tokens, ~censored)

    def not_cut(t: Floats) -> Floats:
        place = np.searchsorted(cut_times, t, side="left") - 1  # just before t
        return np.maximum(np.where(place >= 0, uncut[np.maximum(place, 0)], 1.0), 1e-3)

    weight_own = np.where(censored, 0.0, 1.0 / not_cut(tokens))
    scores = []
    for t in np.geomspace(low, high, 24):
        predicted = survival_at(np.full(len(tokens), t), survival, edges)
        over = tokens > t
        loss = np.where(over, (1.0 - predicted) ** 2 / not_cut(np.array([t])), predicted**2 * weight_own)
        scores.append(loss.mean())
    return float(np.mean(scores))


def bootstrap(
    groups: Ints, tokens: Floats, censored: Bools, survival: Floats, edges: Ints, *, resamples: int = 200, seed: int = 0
) -> dict[str, list[float] | None]:
    """Return 95 % confidence intervals of τ, MAE (tokens) and coverage, resampling whole groups."""
    ended = ~censored
    actual, curves, labels = tokens[ended], survival[ended], groups[ended]
    if len(actual) > _MOST_PAIRED:
        kept = np.sort(np.random.default_rng(seed).choice(len(actual), _MOST_PAIRED, replace=False))
        actual, curves, labels = actual[kept], curves[kept], labels[kept]
    median = quantiles(curves, edges, 0.5)
    low, high = np.floor(quantiles(curves, edges, 0.1)), np.ceil(quantiles(curves, edges, 0.9))
    _, inverse = np.unique(labels, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(inverse))[:-1]) if len(order) else []
    draws: dict[str, list[float]] = {"kendall_tau": [], "mae_tokens": [], "coverage_80": []}
    random = np.random.default_rng(seed)
    for _ in range(resamples if len(members) > 1 else 0):
        rows = np.concatenate([members[g] for g in random.integers(0, len(members), len(members))])
        tau = kendall_tau(median[rows], actual[rows])
        if tau is not None:
            draws["kendall_tau"].append(tau)
        draws["mae_tokens"].append(float(np.abs(median - actual)[rows].mean()))
        draws["coverage_80"].append(float(((actual >= low) & (actual <= high))[rows].mean()))
    return {
        name: [float(x) for x in np.quantile(values, [0.025, 0.975])] if values else None
        for name, values in draws.items()
    }
