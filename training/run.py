"""`laps-sd train`: fit both predictors, evaluate them on a validation split, log the run, write the bundle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import laps_sd
from laps_sd.data import RequestRecord, split
from laps_sd.errors import InputError
from laps_sd.predictors import PredictorBundle, fit_bundle
from laps_sd.predictors.fit import ended, thinned, usable
from laps_sd.predictors.rows import MIN_ROWS
from laps_sd.predictors.store import check_target
from laps_sd.training.checks import check_model, check_names
from laps_sd.training.evaluation.figures import Evaluation, evaluate_predictions
from laps_sd.training.evaluation.finished import predict_finished
from laps_sd.training.evaluation.length import common_grid, lengths_of
from laps_sd.training.evaluation.metrics import length_metrics
from laps_sd.training.evaluation.plots import learning_curve, log_plots
from laps_sd.training.inputs import log_data_set, read_data
from laps_sd.training.model import log_model
from laps_sd.training.registry import Promotion, move_alias, named_version, register_version
from laps_sd.training.tracking import log_numbers, logged_run, tracking
from laps_sd.training.verdict import Verdict, verdict

_VALIDATION_SHARE = 0.2
#: Fewer usable requests leave too few to train on beside the validation split.
LEAST_RECORDS = ceil(MIN_ROWS / (1.0 - _VALIDATION_SHARE))
#: From here on the model that was evaluated is the bundle: a fifth more requests would cost as much time again.
_ENOUGH_ROWS = 40_000
#: Shares of the training split that the learning curve is drawn at, and the most rows that it may cost.
_CURVE_SHARES, _CURVE_ROWS = (0.125, 0.25, 0.5), 5_000


@dataclass(frozen=True)
class TrainResult:
    """What a training left behind.

    Attributes
    ----------
    run_id : str
        MLflow run.
    bundle : Path
        Folder that was written.
    experiment : str
        MLflow experiment.
    metrics : dict
        As ``evaluate``, on the validation split, by models that did not see it.
    verdict : Verdict
        Whether it is worth serving.
    registered : str or None
        When registered: ``models:/NAME@ALIAS`` where the alias names it, else ``models:/NAME/VERSION``.
    promotion : Promotion or None
        How the alias moved.
    """

    run_id: str
    bundle: Path
    experiment: str
    metrics: dict[str, Any]
    verdict: Verdict
    registered: str | None = None
    promotion: Promotion | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of ``laps-sd train``."""
        return {
            "run_id": self.run_id,
            "bundle": str(self.bundle),
            "experiment": self.experiment,
            "registered": self.registered,
            "verdict": self.verdict.to_json(),
            "metrics": self.metrics,
        }


def train(
    data: Sequence[Path | str] | Sequence[RequestRecord],
    out: Path | str,
    *,
    features: str = "lexical",
    predictor: str = "hazard",
    acceptance: str = "prompt",
    seed: int = 0,
    experiment: str = "laps-sd",
    register: str | None = None,
    alias: str = "champion",
    promote: bool = False,
    encoder: str | None = None,
    tracking_uri: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> TrainResult:
    """Train on traces.

    The metrics come from a model fitted without the validation split (a fifth of the groups). The bundle is then
    fitted on everything; from 40,000 training requests on it is the very model that was evaluated. Nothing is written
    to ``out`` before it is logged, and it is registered last.

    Parameters
    ----------
    data : sequence of trace files, or of records
    out : path
        Bundle folder; replaced when it holds a bundle.
    features, predictor, acceptance, encoder, seed
        See :func:`laps_sd.predictors.fit_bundle`.
    experiment : str
        MLflow experiment, made when new.
    register : str, optional
        Name to register the model under.
    alias : str
        What servers follow. It moves to the new version where the verdict is good, where it named none, or with
        ``promote``.
    promote : bool
        Whether it moves whatever the verdict.
    tracking_uri : str, optional
        MLflow store; default ``MLFLOW_TRACKING_URI``, else ``mlflow.db`` in the working directory.
    progress : callable, optional
        Called with a word at the start of each step.

    Raises
    ------
    InputError
        Unreadable data, or nothing that a model can learn from.
    WorkError
        The MLflow store failed.
    """
    tell = progress or (lambda _: None)
    target = Path(out)
    check_target(target)
    check_names(experiment, register, alias)
    check_model(features, predictor, encoder, acceptance)
    tell("read")
    records = usable(read_data(data))
    _check(records)
    fitted, rest = split(records, _VALIDATION_SHARE, seed, of_groups=True)
    held_out = thinned(rest)  # a prompt that is repeated again and again would be all that is measured
    options = {"features": features, "predictor": predictor, "acceptance": acceptance, "encoder": encoder, "seed": seed}
    with tracking(tracking_uri) as mlflow, logged_run(mlflow, experiment, f"train {target.name}") as run:
        mlflow.log_params({"kind": "train", **options, "laps_sd": laps_sd.__version__})
        log_data_set(mlflow, records, data, "training")
        tell("fit without the validation split")
        first = fit_bundle(fitted, **options)
        evaluation = evaluate_predictions(held_out, predict_finished(first, held_out), first, seed=seed)
        tell("learning curve")
        curve = _learning_curve(fitted, held_out, evaluation, options)
        bundle = first
        if len(fitted) < _ENOUGH_ROWS:
            tell("fit on everything")
            bundle = fit_bundle(records, **options)
        bundle.manifest["metrics"] = {"validation": evaluation.figures, "learning_curve": curve}
        tell("log")
        log_numbers(mlflow, evaluation.figures)
        mlflow.log_dict(evaluation.figures, "evaluation.json")
        judged = verdict(evaluation.figures, records)
        mlflow.log_dict(judged.to_json(), "verdict.json")
        tags = _tags(records, judged)
        mlflow.set_tags(tags)
        log_plots(mlflow, evaluation, "plots", {"learning_curve": learning_curve(curve)} if curve else None)
        model = log_model(mlflow, bundle, records[0])
        bundle.manifest["mlflow_run_id"] = run.info.run_id
        bundle.save(target)
        # Last: servers follow the alias, which must never name the model of a run that failed.
        result = TrainResult(run.info.run_id, target, experiment, evaluation.figures, judged)
        if register is None:
            return result
        version = register_version(mlflow, model, register, str(judged), tags)
        if not (promote or judged.good or named_version(mlflow, register, alias) is None):
            return replace(result, registered=f"models:/{register}/{version}")
        promotion = move_alias(mlflow, register, alias, version)
        return replace(result, registered=promotion.uri, promotion=promotion)


def _tags(records: Sequence[RequestRecord], judged: Verdict) -> dict[str, str]:
    """Return what a list of runs or versions should show: verdict, size of the data, and what was served."""
    tags = {
        "verdict": "good" if judged.good else "doubtful",
        "requests": str(len(records)),
        "ended": str(sum(map(ended, records))),
    }
    for name in ("model", "draft"):
        values = sorted({str(value) for record in records if (value := getattr(record, name))})
        if values:
            tags[f"served_{name}"] = ", ".join(values)[:500]
    return {f"laps_sd.{name}": value for name, value in tags.items()}


def _check(records: Sequence[RequestRecord]) -> None:
    if len(records) < LEAST_RECORDS:
        raise InputError(
            f"only {len(records)} records with prompt text; training needs at least {LEAST_RECORDS}: collect more"
        )
    if not any(map(ended, records)):
        raise InputError(
            "every request was cut (finish_reason length or abort), so no ending was seen; "
            "collect with a larger max_new_tokens"
        )
    if len({r.output_tokens for r in records if ended(r)}) < 2:
        raise InputError(
            "all requests that ended by themselves have the same output length: there is nothing to predict; "
            "check output_tokens in the data"
        )


def _learning_curve(
    fitted: Sequence[RequestRecord],
    held_out: Sequence[RequestRecord],
    evaluation: Evaluation,
    options: dict[str, Any],
) -> dict[int, dict[str, Any]]:
    """Evaluate models fitted on the first rows of the training split, which is in random order of groups."""
    points: dict[int, dict[str, Any]] = {}
    for share in _CURVE_SHARES:
        n = int(share * len(fitted))
        if LEAST_RECORDS <= n <= _CURVE_ROWS and any(map(ended, fitted[:n])):
            points[n] = _length_figures(fit_bundle(fitted[:n], **options, refine=False), held_out)
    if points:
        points[len(fitted)] = {k: v for k, v in evaluation.figures["length"].items() if k != "ci_95"}
    return points


def _length_figures(bundle: PredictorBundle, records: Sequence[RequestRecord]) -> dict[str, Any]:
    judged = [r for r in records if r.own_length]
    tokens, censored = lengths_of(judged)
    edges, survival = common_grid([p.length for p in predict_finished(bundle, judged).predictions])
    return length_metrics(tokens, censored, survival, edges)
