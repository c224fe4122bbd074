"""All figures of one evaluation: length, acceptance and execution time, beside baselines and the noise ceiling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from laps_sd.data import PromptRequest, RequestRecord
from laps_sd.data.groups.split import groups_of
from laps_sd.errors import InputError
from laps_sd.predictors import PredictorBundle
from laps_sd.predictors.arrays import Bools, Floats, Ints
from laps_sd.predictors.fingerprint import shift
from laps_sd.scheduler import Prediction
from laps_sd.training.evaluation.acceptance import evaluate_acceptance
from laps_sd.training.evaluation.execution_time import evaluate_execution_time
from laps_sd.training.evaluation.finished import Finished
from laps_sd.training.evaluation.length import baselines, common_grid, lengths_of, noise_ceiling
from laps_sd.training.evaluation.metrics import bootstrap, length_metrics
from laps_sd.training.evaluation.refinement import evaluate_refinement

#: Requests that the prediction time is taken over.
_TIMED = 200


@dataclass(frozen=True)
class Evaluation:
    """What the figures were computed from, for plots, and the figures.

    Attributes
    ----------
    records, predictions : sequences of equal length
        Of the requests whose length is their own (not of ``ignore_eos``).
    edges : array of int64, shape (G,)
        Common grid of the curves, tokens.
    survival : array, shape (n, G)
        Predicted curves on that grid.
    figures : dict
        The JSON of ``laps-sd evaluate`` (docs/predictors.md).
    """

    records: Sequence[RequestRecord]
    predictions: Sequence[Prediction]
    edges: Ints
    survival: Floats
    figures: dict[str, Any]

    @property
    def tokens(self) -> Floats:
        """Output lengths, tokens, shape (n,)."""
        return lengths_of(self.records)[0]

    @property
    def censored(self) -> Bools:
        """Which requests were cut, shape (n,)."""
        return lengths_of(self.records)[1]


def evaluate_predictions(
    records: Sequence[RequestRecord],
    believed: Finished,
    bundle: PredictorBundle,
    *,
    seed: int = 0,
    known: bool = True,
) -> Evaluation:
    """Compare predictions with what happened.

    Parameters
    ----------
    records : sequence of RequestRecord
        Finished requests with prompt text.
    believed : Finished
        What was believed about each before it ran.
    bundle : PredictorBundle
        What predicted (any fold's, for timing).
    seed : int
        Of baselines' folds and bootstrap.
    known : bool
        Whether ``bundle`` predicted all of it, so that its fingerprint says how unlike its training data this is.
    """
    if not records:
        raise InputError("there is nothing to evaluate: no record has prompt text")
    own = [i for i, r in enumerate(records) if r.own_length]
    judged, predictions = [records[i] for i in own], [believed.predictions[i] for i in own]
    if not own:
        raise InputError("there is nothing to evaluate: every request ignored its end token (ignore_eos)")
    tokens, censored = lengths_of(judged)
    edges, survival = common_grid([p.length for p in predictions])
    length = length_metrics(tokens, censored, survival, edges)
    length["ci_95"] = bootstrap(groups_of(judged), tokens, censored, survival, edges, seed=seed)
    p50, p99 = predict_time(bundle, records)
    shifted = shift(bundle.manifest["training"]["fingerprint"], records) if known else None
    figures = {
        "n": len(records),
        "n_censored": sum(r.censored for r in records),
        "length": length,
        **_steps(records, believed),
        "refinement": evaluate_refinement(records, believed.predictions, believed.refined),
        "baselines": baselines(judged, seed),
        "noise_ceiling": noise_ceiling(judged),
        "shift": shifted,
        "predict_ms_p50": p50,
        "predict_ms_p99": p99,
    }
    return Evaluation(judged, predictions, edges, survival, figures)


def _steps(records: Sequence[RequestRecord], believed: Finished) -> dict[str, Any]:
    """Evaluate what needs verify steps: null where training or these records have none."""
    if believed.priors is None:
        return {"acceptance": None, "execution_time": None}
    curves = [p.length for p in believed.predictions]
    return {
        "acceptance": evaluate_acceptance(records, believed.priors),
        "execution_time": evaluate_execution_time(records, believed.priors, curves),
    }


def predict_time(bundle: PredictorBundle, records: Sequence[RequestRecord]) -> tuple[float, float]:
    """Return median and 99th percentile of the time to predict one request, milliseconds, in this process."""
    step = max(1, len(records) // _TIMED)
    requests = [PromptRequest.from_record(r) for r in records[::step][:_TIMED]]
    bundle.predict_one(requests[0])
    times = []
    for request in requests:
        start = perf_counter()
        bundle.predict_one(request)
        times.append((perf_counter() - start) * 1e3)
    p50, p99 = np.quantile(times, [0.5, 0.99])
    return float(p50), float(p99)
