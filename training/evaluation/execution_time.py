"""How well the remaining verify steps of a request are known: the `execution_time` part of ``laps-sd evaluate``.

The estimate is what the scheduler acts on: tokens left (known, or the median of the survival curve given the tokens
so far) times the posterior's expected steps per token. Verify steps are the unit of service, so no machine's clock
enters.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, exp, floor, hypot, log
from typing import Any

import numpy as np

from laps_sd.data import RequestRecord
from laps_sd.predictors.acceptance.base import AcceptancePrior
from laps_sd.predictors.acceptance.observed import step_tokens
from laps_sd.scheduler import Settings, SurvivalCurve
from laps_sd.scheduler.posterior.base import AcceptancePosterior
from laps_sd.training.evaluation.acceptance import LEVEL, feed, proposed_drafts, start

CHECKPOINTS = (0, 8, 16, 32)
#: Overall estimation error that the paper reports (LAPS-SD, arXiv 2505.17074); its protocol is not published.
PAPER_ERROR = 0.0684

_ERROR = "remaining_steps_median_relative_error"
_NAMES = (
    "n_running",
    _ERROR,
    f"{_ERROR}_known_length",
    "whole_request_median_relative_error_known_length",
    "elapsed_share",
    "perceptible_share",
    "perceptible_error_known_length",
    "coverage_80",
    "coverage_80_known_length",
)


def evaluate_execution_time(
    records: Sequence[RequestRecord],
    priors: Sequence[AcceptancePrior],
    curves: Sequence[SurvivalCurve],
    *,
    stability: float = Settings().stability,
) -> dict[str, Any] | None:
    """Compare estimates of the remaining verify steps with what happened.

    Parameters
    ----------
    records : sequence of RequestRecord
        Finished requests; those that ended by themselves and carry their verify steps in order are counted.
    priors : sequence of AcceptancePrior
    curves : sequence of SurvivalCurve
        Predicted lengths, tokens.
    stability : float
        Relative width at which a posterior counts as perceptible.

    Returns
    -------
    dict or None
        By steps seen ("0", "8", "16", "32"), over the requests that still ran: ``n_running``; median relative error of
        the remaining steps with predicted and with known length; the same error as a share of the whole request, and
        the median share already elapsed (without which an error of the whole request says little); the share of
        requests that are perceptible, and their error with known length; the share of requests inside the 80 %
        interval, with predicted and with known length. ``paper_error``: the paper's figure. None without verify steps
        in order.
    """
    kept = [
        row
        for row in zip(records, priors, curves, strict=True)
        if row[0].accept_lengths is not None and row[0].own_length and not row[0].censored
    ]
    if not kept:
        return None
    by_steps: dict[str, dict[str, float | None]] = {name: {} for name in _NAMES}
    for seen in CHECKPOINTS:
        rows = [_at(seen, *row, stability) for row in kept if len(row[0].accept_lengths or ()) > seen]
        for name in _NAMES:
            by_steps[name][str(seen)] = _figure(name, rows)
    return {"n": len(kept), "paper_error": PAPER_ERROR, **by_steps}


def _at(
    seen: int, record: RequestRecord, prior: AcceptancePrior, curve: SurvivalCurve, stability: float
) -> dict[str, float]:
    tokens = step_tokens(record)
    posterior = start(prior)
    feed(posterior, tokens, proposed_drafts(record, prior.drafts, tokens), 0, seen)
    produced = int(tokens[:seen].sum())
    left, left_steps = float(tokens[seen:].sum()), float(len(tokens) - seen)
    median = max(curve.quantile(0.5, produced), 1.0)
    known, predicted = (max(count * posterior.steps_per_token(), 1.0) for count in (left, median))
    return {
        "error": abs(predicted - left_steps) / left_steps,
        "error_known": abs(known - left_steps) / left_steps,
        "error_whole": abs(known - left_steps) / len(tokens),
        "elapsed": seen / len(tokens),
        "stable": float(posterior.stable(stability)),
        "inside": float(_inside(left_steps, _interval(posterior, curve, produced, predicted))),
        "inside_known": float(_inside(left_steps, _interval_known(posterior, left, known))),
    }


def _interval_known(posterior: AcceptancePosterior, left: float, steps: float) -> tuple[float, float]:
    """Interval of the steps that ``left`` tokens take."""
    low, high = posterior.predictive_interval(LEVEL, steps)
    return left / high, left / low


def _interval(posterior: AcceptancePosterior, curve: SurvivalCurve, produced: int, steps: float) -> tuple[float, float]:
    """Interval of the remaining steps when the length is predicted too.

    Length and acceptance are taken as independent and as roughly normal in the logarithm, so that the distances from
    the median to either end add in squares.
    """
    median = max(curve.quantile(0.5, produced), 1.0)
    shortest = max(curve.quantile(0.5 - LEVEL / 2, produced), 1.0)
    longest = max(curve.quantile(0.5 + LEVEL / 2, produced), 1.0)
    fewest, most = posterior.predictive_interval(LEVEL, steps)
    mean = posterior.mean()
    center = log(median * posterior.steps_per_token())
    below = hypot(log(median / shortest), log(most / mean))
    above = hypot(log(longest / median), log(mean / fewest))
    return exp(center - below), exp(center + above)


def _inside(steps: float, interval: tuple[float, float]) -> bool:
    # Steps are whole numbers: an interval holds those that it touches when rounded outwards.
    return floor(interval[0]) <= steps <= ceil(interval[1])


def _figure(name: str, rows: Sequence[dict[str, float]]) -> float | None:
    if name == "n_running":
        return len(rows)
    if name == "perceptible_error_known_length":
        rows = [row for row in rows if row["stable"]]
    if not rows:
        return None
    columns = {
        "perceptible_share": "stable",
        "coverage_80": "inside",
        "coverage_80_known_length": "inside_known",
    }
    if name in columns:
        return float(np.mean([row[columns[name]] for row in rows]))
    medians = {
        _ERROR: "error",
        f"{_ERROR}_known_length": "error_known",
        "whole_request_median_relative_error_known_length": "error_whole",
        "elapsed_share": "elapsed",
        "perceptible_error_known_length": "error_known",
    }
    return float(np.median([row[medians[name]] for row in rows]))
