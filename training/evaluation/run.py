"""`laps-sd evaluate`: a bundle on records, or a kind of bundle by grouped cross-validation, logged to MLflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from laps_sd.data import RequestRecord, group_folds
from laps_sd.errors import InputError
from laps_sd.predictors import PredictorBundle
from laps_sd.predictors.fit import usable
from laps_sd.training.checks import check_fingerprint, check_folds, check_model, check_names
from laps_sd.training.evaluation.figures import Evaluation, evaluate_predictions
from laps_sd.training.evaluation.finished import predict_finished
from laps_sd.training.evaluation.out_of_fold import cross_predict
from laps_sd.training.evaluation.plots import log_plots
from laps_sd.training.inputs import log_data_set, read_data
from laps_sd.training.resolve import load_bundle
from laps_sd.training.tracking import log_numbers, logged_run, tracking


def evaluate(
    bundle: str | Path | PredictorBundle | None,
    data: Sequence[Path | str] | Sequence[RequestRecord],
    **options: Any,
) -> dict[str, Any]:
    """Return the figures of :func:`run_evaluation`, the JSON of ``laps-sd evaluate``."""
    return run_evaluation(bundle, data, **options).figures


def run_evaluation(
    bundle: str | Path | PredictorBundle | None,
    data: Sequence[Path | str] | Sequence[RequestRecord],
    *,
    cv: int | None = None,
    features: str = "lexical",
    predictor: str = "hazard",
    acceptance: str = "prompt",
    encoder: str | None = None,
    seed: int = 0,
    experiment: str = "laps-sd",
    tracking_uri: str | None = None,
    run_id: str | None = None,
    log: bool = True,
    progress: Callable[[], None] | None = None,
) -> Evaluation:
    """Evaluate predictions of length and acceptance.

    Parameters
    ----------
    bundle : path, MLflow URI, PredictorBundle or None
        What to evaluate; None with ``cv``.
    data : sequence of trace files, or of records
    cv : int, optional
        Folds of a grouped out-of-fold evaluation of ``features``, ``predictor`` and ``acceptance``.
    run_id : str, optional
        MLflow run to add to (that of the training); a new one when None.
    log : bool
        Whether to log to MLflow at all.
    progress : callable, optional
        Called after each fold.

    Raises
    ------
    InputError
        Neither or both of ``bundle`` and ``cv``; unreadable data or bundle; nothing to evaluate.
    WorkError
        The MLflow store failed.
    """
    if (bundle is None) == (cv is None):
        raise InputError("give either a bundle to evaluate or the number of folds of a cross-validation")
    check_names(experiment)
    loaded = load_bundle(bundle, tracking_uri) if isinstance(bundle, (str, Path)) else bundle
    if loaded is None:
        check_model(features, predictor, encoder, acceptance)
    records = usable(read_data(data))
    if not records:
        raise InputError("there is nothing to evaluate: the data hold no record")
    if loaded is not None:
        check_fingerprint(loaded, records)
    folds = group_folds(records, cv, seed) if cv is not None else []
    check_folds(records, folds)

    def work() -> Evaluation:
        if loaded is not None:
            return evaluate_predictions(records, predict_finished(loaded, records), loaded, seed=seed)
        believed, last = cross_predict(
            records,
            folds,
            seed,
            features=features,
            predictor=predictor,
            acceptance=acceptance,
            encoder=encoder,
            progress=progress,
        )
        return evaluate_predictions(records, believed, last, seed=seed, known=False)

    if not log:
        return work()
    with tracking(tracking_uri) as mlflow, logged_run(mlflow, experiment, "evaluate", run_id):
        log_data_set(mlflow, records, data, "evaluation")
        if run_id is None:
            what = (
                {"cv": cv, "features": features, "predictor": predictor, "acceptance": acceptance, "seed": seed}
                if cv
                else {"bundle": bundle}
            )
            mlflow.log_params({"kind": "evaluate", **what})
        evaluation = work()
        log_numbers(mlflow, evaluation.figures, "evaluation.")
        mlflow.log_dict(evaluation.figures, "evaluation.json")
        log_plots(mlflow, evaluation, "evaluation")
        return evaluation
