"""The prediction-accuracy evaluation: predictions beside what happened, baselines and the noise ceiling."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from laps_sd.data import PromptRequest, RequestRecord, group_folds
from laps_sd.data.groups.split import groups_of
from laps_sd.errors import InputError
from laps_sd.predictors import PredictorBundle
from laps_sd.predictors.acceptance.predictor import AcceptancePrior
from laps_sd.predictors.buckets import Bools, Floats, Ints
from laps_sd.predictors.fingerprint import shift
from laps_sd.predictors.length.baselines import AskedForLength, CategoryLength, ConstantLength, PromptLength
from laps_sd.scheduler import Prediction, SurvivalCurve
from laps_sd.training.evaluation.acceptance import evaluate_acceptance
from laps_sd.training.evaluation.execution_time import evaluate_execution_time
from laps_sd.training.evaluation.metrics import bootstrap, length_metrics

_TIMED = 200


@dataclass(frozen=True)
class Evaluation:
    """What the figures were computed from, for plots, and the figures.

    Attributes
    ----------
    records, predictions : sequences of equal length
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


def judge(
    records: Sequence[RequestRecord],
    predictions: Sequence[Prediction],
    bundle: PredictorBundle,
    priors: Sequence[AcceptancePrior] | None,
    *,
    seed: int = 0,
    known: bool = True,
) -> Evaluation:
    """Judge predictions.

    Parameters
    ----------
    records : sequence of RequestRecord
        Finished requests with prompt text.
    predictions : sequence of Prediction
        What was predicted for each before it ran.
    bundle : PredictorBundle
        What predicted (any fold's, for timing).
    priors : sequence of AcceptancePrior, optional
        What was believed about each request's acceptance before it ran.
    seed : int
        Of baselines' folds and bootstrap.
    known : bool
        Whether ``bundle`` predicted all of it, so that its fingerprint says how unlike its training data this is.
    """
    if not records:
        raise InputError("there is nothing to evaluate: no record has prompt text")
    tokens, censored = lengths_of(records)
    edges, survival = common_grid([p.length for p in predictions])
    length = length_metrics(tokens, censored, survival, edges)
    length["ci_95"] = bootstrap(groups_of(records), tokens, censored, survival, edges, seed=seed)
    p50, p99 = predict_time(bundle, records)
    shifted = shift(bundle.manifest["training"]["fingerprint"], records) if known else None
    figures = {
        "n": len(records),
        "n_censored": int(censored.sum()),
        "length": length,
        **_steps(records, predictions, priors),
        "baselines": baselines(records, seed),
        "noise_ceiling": noise_ceiling(records),
        "shift": shifted,
        "predict_ms_p50": p50,
        "predict_ms_p99": p99,
    }
    return Evaluation(records, predictions, edges, survival, figures)


def _steps(
    records: Sequence[RequestRecord], predictions: Sequence[Prediction], priors: Sequence[AcceptancePrior] | None
) -> dict[str, Any]:
    """Judge what needs verify steps: null where training or these records have none."""
    if priors is None:
        return {"acceptance": None, "execution_time": None}
    curves = [p.length for p in predictions]
    return {
        "acceptance": evaluate_acceptance(records, priors),
        "execution_time": evaluate_execution_time(records, priors, curves),
    }


def lengths_of(records: Sequence[RequestRecord]) -> tuple[Floats, Bools]:
    """Return output lengths (tokens, at least 1) and censoring marks."""
    tokens = np.array([max(1, r.output_tokens) for r in records], dtype=np.float64)
    return tokens, np.array([r.censored for r in records], dtype=np.bool_)


def common_grid(curves: Sequence[SurvivalCurve]) -> tuple[Ints, Floats]:
    """Put curves on the union of their edges, where nothing of them is lost."""
    grids = {tuple(c.edges.tolist()) for c in curves}
    if len(grids) == 1:
        return curves[0].edges, np.array([c.survival for c in curves])
    edges = np.array(sorted(set().union(*grids)), dtype=np.int64)
    survival = np.empty((len(curves), len(edges)))
    for row, curve in zip(survival, curves, strict=True):
        own = curve.edges
        row[:] = np.interp(edges, own, curve.survival)
        beyond = edges > own[-1]
        row[beyond] = [curve.survive(int(t)) for t in edges[beyond]]
    return edges, survival


def baselines(records: Sequence[RequestRecord], seed: int) -> dict[str, Any]:
    """Judge the baselines, fitted out-of-fold on these very records: more than a fair start for them.

    Returns
    -------
    dict
        For ``constant``, ``prompt_length``, ``category`` and ``asked_for`` the figures of ``length``, or None where
        there are too few records or no categories.
    """
    requests = [PromptRequest.from_record(r) for r in records]
    categories = [r.category for r in records]
    tokens, censored = lengths_of(records)
    try:
        folds = group_folds(records, 5, seed)
        rest = [np.setdiff1d(np.arange(len(records)), test) for test in folds]
        found: dict[str, Any] = {}
        for name, estimator in (
            ("constant", ConstantLength()),
            ("prompt_length", PromptLength()),
            ("asked_for", AskedForLength()),
        ):
            curves: dict[int, SurvivalCurve] = {}
            for train, test in zip(rest, folds, strict=True):
                estimator.fit([requests[i] for i in train], tokens[train], censored[train])
                curves.update(zip(test.tolist(), estimator.predict_curves([requests[i] for i in test]), strict=True))
            found[name] = _judged(curves, tokens, censored)
        curves = {}
        for train, test in zip(rest, folds, strict=True):
            model = CategoryLength().fit([categories[i] for i in train], tokens[train], censored[train])
            rows = model.predict_survival([categories[i] for i in test])
            curves.update((i, SurvivalCurve(model.edges_, row)) for i, row in zip(test.tolist(), rows, strict=True))
        found["category"] = _judged(curves, tokens, censored) if any(categories) else None
    except InputError:  # too few records for folds: the predictor's own figures still stand
        return dict.fromkeys(("constant", "prompt_length", "category", "asked_for"))
    return found


def _judged(curves: dict[int, SurvivalCurve], tokens: Floats, censored: Bools) -> dict[str, Any]:
    edges, survival = common_grid([curves[i] for i in range(len(tokens))])
    return {"length": length_metrics(tokens, censored, survival, edges)}


def noise_ceiling(records: Sequence[RequestRecord]) -> dict[str, Any] | None:
    """Return how well one sampled answer orders another's length: what no predictor from the prompt can much exceed.

    Returns
    -------
    dict or None
        ``kendall_tau`` between two answers of one model to the same prompts, and ``n_prompts``; None with fewer
        than 10 prompts that were answered twice.
    """
    answers: defaultdict[tuple[str | None, str | None, float | None], list[int]] = defaultdict(list)
    for record in records:
        if not record.censored:
            answers[record.prompt, record.model, record.temperature].append(record.output_tokens)
    pairs = [(lengths[0], lengths[1]) for lengths in answers.values() if len(lengths) > 1]
    if len(pairs) < 10:
        return None
    first, second = zip(*pairs, strict=True)
    tau = float(kendalltau(first, second).statistic)
    return {"kendall_tau": tau, "n_prompts": len(pairs)} if np.isfinite(tau) else None


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
