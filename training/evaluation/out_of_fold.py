"""Out-of-fold predictions: every request predicted by models that never saw it or its group."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from laps_sd.data import PromptRequest, RequestRecord, group_folds
from laps_sd.errors import InputError
from laps_sd.predictors import PredictorBundle, fit_bundle
from laps_sd.predictors.acceptance.predictor import AcceptancePrior, PromptAcceptance
from laps_sd.predictors.acceptance.runs import run_keys
from laps_sd.predictors.buckets import Ints
from laps_sd.scheduler import Prediction
from laps_sd.training.evaluation.acceptance import priors_of


def oof_predictions(
    records: Sequence[RequestRecord],
    folds: int = 5,
    seed: int = 0,
    *,
    features: str = "lexical",
    predictor: str = "hazard",
    encoder: str | None = None,
) -> list[Prediction]:
    """Predict each record from models fitted on the other folds; folds never split a group.

    Returns
    -------
    list of Prediction
        In the order of ``records``.

    Raises
    ------
    InputError
        A record has no prompt text, or a fold leaves too little to train on.
    """
    rows = group_folds(records, folds, seed)
    return cross_predict(records, rows, seed, features=features, predictor=predictor, encoder=encoder)[0]


def cross_predict(
    records: Sequence[RequestRecord],
    folds: Sequence[Ints],
    seed: int,
    *,
    features: str = "lexical",
    predictor: str = "hazard",
    encoder: str | None = None,
    progress: Callable[[], None] | None = None,
) -> tuple[list[Prediction], list[AcceptancePrior] | None, PredictorBundle]:
    """Return out-of-fold predictions and acceptance priors, and the last fold's bundle.

    ``folds`` holds the test rows of each fold, as :func:`laps_sd.data.group_folds` draws them; ``progress`` is called
    after each. Priors are None without acceptance data.
    """
    if any(r.prompt is None for r in records):
        raise InputError("out-of-fold predictions need the prompt text of every record")
    found: dict[int, Prediction] = {}
    priors: dict[int, AcceptancePrior] = {}
    bundle: PredictorBundle | None = None
    for test in folds:
        held_out = set(test.tolist())
        rest = [r for i, r in enumerate(records) if i not in held_out]
        bundle = fit_bundle(rest, features=features, predictor=predictor, seed=seed, encoder=encoder)
        rows = [records[i] for i in test]
        found.update(zip(test.tolist(), predict_records(bundle, rows), strict=True))
        priors.update(zip(test.tolist(), priors_from(bundle, rows) or [], strict=False))
        if progress is not None:
            progress()
    assert bundle is not None  # group_folds gives two folds or more
    complete = [priors[i] for i in range(len(records))] if len(priors) == len(records) else None
    return [found[i] for i in range(len(records))], complete, bundle


def priors_from(bundle: PredictorBundle, records: Sequence[RequestRecord]) -> list[AcceptancePrior] | None:
    """Return what is believed about each request's acceptance at arrival; None without acceptance data in training."""
    if not isinstance(bundle.acceptance, PromptAcceptance):
        return None
    return priors_of(bundle.acceptance, records)


def predict_records(bundle: PredictorBundle, records: Sequence[RequestRecord]) -> list[Prediction]:
    """Predict finished requests as if they arrived now: each run's draft and draft length are what a server knows."""
    predictions: dict[int, Prediction] = {}
    runs: dict[tuple[str | None, int | None], list[int]] = {}
    for i, key in enumerate(run_keys(records)):  # a record's own draft length may have been read off its outcome
        runs.setdefault((key.draft, key.drafts), []).append(i)
    for (draft, most), rows in runs.items():
        requests = [PromptRequest.from_record(records[i]) for i in rows]
        found = bundle.predict(requests, draft=draft, max_correct_drafts=most)
        predictions.update(zip(rows, found, strict=True))
    return [predictions[i] for i in range(len(records))]
