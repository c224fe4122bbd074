"""How well the rest of an answer is known after so many tokens: the `refinement` part of ``laps-sd evaluate``.

Beside each other: the curve of arrival given the tokens so far, and the same curve refined by what they said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, log
from typing import Any

import numpy as np

from laps_sd.data import RequestRecord
from laps_sd.data.progress.counting import CHECKPOINTS
from laps_sd.predictors.progress.rows import counted
from laps_sd.scheduler import Prediction, SurvivalCurve
from laps_sd.training.evaluation.metrics import kendall_tau

#: Refined curves of one request, by checkpoint.
Refined = Mapping[int, SurvivalCurve]

ARRIVAL, REFINED = "arrival", "refined"
#: What is compared; each figure comes with the suffixes ``_arrival`` and ``_refined``.
FIGURES = ("kendall_tau", "log_error_sd", "coverage_80", "mae_left_tokens")


def evaluate_refinement(
    records: Sequence[RequestRecord], predictions: Sequence[Prediction], refined: Sequence[Refined] | None
) -> dict[str, Any] | None:
    """Compare what is believed of the rest at each checkpoint with what came.

    Parameters
    ----------
    records : sequence of RequestRecord
        Finished requests; those that ended by themselves and whose answers were counted enter.
    predictions : sequence of Prediction
        Of arrival.
    refined : sequence of Refined or None
        Refined curves of each request; a checkpoint that is not in it is believed as at arrival. None: no refinement
        was learned.

    Returns
    -------
    dict or None
        By checkpoint ("32", "64" …), over the requests that still ran: ``n_running``; Kendall's τ between predicted
        and real tokens left (`kendall_tau_…`); the standard deviation of log predicted over real whole length
        (`log_error_sd_…`); the share of requests inside the 80 % interval of the rest (`coverage_80_…`); the mean
        absolute error of the tokens left (`mae_left_tokens_…`). Point estimates are medians. None without a
        refinement, or without counted answers.
    """
    if refined is None:
        return None
    rows = [
        (float(record.output_tokens), prediction.length, curves)
        for record, prediction, curves in zip(records, predictions, refined, strict=True)
        if counted(record) and not record.censored
    ]
    if not rows:
        return None
    names = ["n_running", *(f"{figure}_{kind}" for figure in FIGURES for kind in (ARRIVAL, REFINED))]
    found: dict[str, Any] = {name: {} for name in names}
    for checkpoint in CHECKPOINTS:
        running = [row for row in rows if row[0] > checkpoint]
        if not running:
            continue
        found["n_running"][str(checkpoint)] = len(running)
        tokens = [length for length, _, _ in running]
        for kind, curves in (
            (ARRIVAL, [curve for _, curve, _ in running]),
            (REFINED, [own.get(checkpoint, curve) for _, curve, own in running]),
        ):
            for figure, value in _figures(checkpoint, tokens, curves).items():
                found[f"{figure}_{kind}"][str(checkpoint)] = value
    return {"n": len(rows), **found}


def _figures(checkpoint: int, tokens: Sequence[float], curves: Sequence[SurvivalCurve]) -> dict[str, float | None]:
    left = np.array(tokens) - checkpoint
    quantiles = np.array([[curve.quantile(q, checkpoint) for q in (0.1, 0.5, 0.9)] for curve in curves])
    inside = [floor(low) <= real <= ceil(high) for real, low, high in zip(left, *quantiles.T[[0, 2]], strict=True)]
    median = quantiles[:, 1]
    errors = [log(checkpoint + m) - log(t) for m, t in zip(median, tokens, strict=True)]
    return {
        "kendall_tau": kendall_tau(median, left),
        "log_error_sd": float(np.std(errors)),
        "coverage_80": float(np.mean(inside)),
        "mae_left_tokens": float(np.abs(median - left).mean()),
    }
