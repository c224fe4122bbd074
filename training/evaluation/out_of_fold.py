"""Out-of-fold predictions: every request predicted by models that never saw it or its group."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from laps_sd.data import RequestRecord, group_folds
from laps_sd.errors import InputError
from laps_sd.predictors import PredictorBundle, fit_bundle
from laps_sd.predictors.acceptance.base import AcceptancePrior
from laps_sd.predictors.arrays import Ints
from laps_sd.scheduler import Prediction, SurvivalCurve
from laps_sd.training.evaluation.finished import Finished, predict_finished


def oof_predictions(
    records: Sequence[RequestRecord],
    folds: int = 5,
    seed: int = 0,
    *,
    features: str = "lexical",
    predictor: str = "hazard",
    acceptance: str = "prompt",
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
    return cross_predict(
        records,
        rows,
        seed,
        features=features,
        predictor=predictor,
        acceptance=acceptance,
        encoder=encoder,
        refine=False,
    )[0].predictions


def cross_predict(
    records: Sequence[RequestRecord],
    folds: Sequence[Ints],
    seed: int,
    *,
    features: str = "lexical",
    predictor: str = "hazard",
    acceptance: str = "prompt",
    encoder: str | None = None,
    refine: bool = True,
    progress: Callable[[], None] | None = None,
) -> tuple[Finished, PredictorBundle]:
    """Return what was believed out-of-fold, and the last fold's bundle.

    ``folds`` holds the test rows of each fold, as :func:`laps_sd.data.group_folds` draws them; ``progress`` is called
    after each. Priors are None without acceptance data; with ``refine`` lengths are refined in flight too, where all
    folds learn to.
    """
    if any(r.prompt is None for r in records):
        raise InputError("out-of-fold predictions need the prompt text of every record")
    found: dict[int, Prediction] = {}
    priors: dict[int, AcceptancePrior] = {}
    refined: dict[int, dict[int, SurvivalCurve]] = {}
    bundle: PredictorBundle | None = None
    for test in folds:
        held_out = set(test.tolist())
        rest = [r for i, r in enumerate(records) if i not in held_out]
        bundle = fit_bundle(
            rest,
            features=features,
            predictor=predictor,
            acceptance=acceptance,
            seed=seed,
            encoder=encoder,
            refine=refine,
        )
        believed = predict_finished(bundle, [records[i] for i in test])
        found.update(zip(test.tolist(), believed.predictions, strict=True))
        priors.update(zip(test.tolist(), believed.priors or [], strict=False))
        refined.update(zip(test.tolist(), believed.refined or [], strict=False))
        if progress is not None:
            progress()
    assert bundle is not None  # group_folds gives two folds or more
    places = range(len(records))
    return Finished(
        [found[i] for i in places],
        [priors[i] for i in places] if len(priors) == len(records) else None,
        [refined[i] for i in places] if len(refined) == len(records) else None,
    ), bundle
