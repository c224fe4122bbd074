"""A live comparison as an MLflow run: its workload, its figures, and the files that it wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from laps_sd.training.tracking import log_numbers, logged_run, tracking

#: Parts of the result whose numbers become metrics.
_FIGURES = ("policies", "ratios", "steps")


def log_comparison(
    result: Mapping[str, Any], files: Iterable[Path], experiment: str, tracking_uri: str | None = None
) -> str:
    """Log what ``laps-sd bench`` found, and return the run's id.

    Parameters
    ----------
    result : mapping
        The JSON of the command.
    files : iterable of Path
        Become artifacts.
    experiment : str
    tracking_uri : str, optional
        Default: ``MLFLOW_TRACKING_URI``, or ``mlflow.db`` in the working directory.

    Raises
    ------
    WorkError
        MLflow is not installed, or the store cannot be reached.
    """
    policies = list(result["policies"])
    with tracking(tracking_uri) as mlflow, logged_run(mlflow, experiment, " ".join(policies)) as run:
        workload = {name: value for name, value in result["workload"].items() if not isinstance(value, dict)}
        mlflow.log_params({**workload, "policies": ",".join(policies)})
        mlflow.set_tag("laps_sd.identical_tokens", str(result["identical_tokens"]))
        log_numbers(mlflow, {name: result[name] for name in _FIGURES if result.get(name)})
        if result.get("simulated"):
            log_numbers(mlflow, _errors(result["simulated"]), "simulated.")
        for path in files:
            mlflow.log_artifact(str(path))
        return str(run.info.run_id)


def _errors(simulated: Mapping[str, Any]) -> dict[str, float]:
    rows = (*simulated["ratios"], *simulated["figures"])
    return {f"error.{row['policy']}.{row['unit']}.{row['statistic']}": row["error"] for row in rows}
