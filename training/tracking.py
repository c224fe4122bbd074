"""The MLflow store: which one, and how a run begins and ends in it."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from laps_sd.errors import InputError, LapsError, WorkError
from laps_sd.training.signals import uninterrupted

_STORE = "MLFLOW_TRACKING_URI"
#: A server that dies during the work is not asked again for minutes.
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}
#: Whether a server is there at all is known sooner: nothing has been done yet that a longer wait could save.
_FIRST_CALL = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
#: What a network says, found in MLflow's longer words, and how people say it.
_NETWORK = {
    "Connection refused": "nothing listens there",
    "timed out": "it does not answer",
    "Failed to resolve": "there is no host of that name",
}


def mlflow_module() -> Any:
    """Import MLflow quietly.

    Usage statistics stay off unless the user turns them on: MLflow would send them out of the user's network.

    Raises
    ------
    WorkError
        MLflow is not installed.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    for name, value in _PATIENCE.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    try:
        import mlflow
    except ImportError as error:
        raise WorkError("this needs MLflow, which is not installed: pip install 'laps-sd[train]'") from error
    for name in ("alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what it would say as an error is raised as well
    return mlflow


def store_uri(tracking_uri: str | None) -> str:
    """Return the store: what is given, else ``MLFLOW_TRACKING_URI``, else ``mlflow.db`` in the working directory."""
    named = tracking_uri or os.environ.get(_STORE)
    return named or f"sqlite:///{(Path.cwd() / 'mlflow.db').as_posix()}"


def check_store(uri: str) -> None:
    """Refuse to look for a model in an SQLite file that does not exist: MLflow would make an empty one.

    Raises
    ------
    InputError
        There is no such file.
    """
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).is_file():
        raise InputError(f"there is no MLflow store {uri}; set MLFLOW_TRACKING_URI to the one that the model is in")


@contextmanager
def tracking(tracking_uri: str | None) -> Iterator[Any]:
    """Point MLflow at the store and back again afterwards; yields the module.

    Raises
    ------
    WorkError
        The store cannot be reached.
    """
    mlflow = mlflow_module()
    before, registry, named = mlflow.get_tracking_uri(), mlflow.get_registry_uri(), os.environ.get(_STORE)
    uri = store_uri(tracking_uri)
    mlflow.set_tracking_uri(uri)
    mlflow.set_registry_uri(uri)
    try:
        _reach(mlflow, uri)
        yield mlflow
    except LapsError:
        raise
    except (mlflow.exceptions.MlflowException, ConnectionError) as error:
        raise WorkError(f"the MLflow store {without_password(uri)} failed: {_why(error, uri)}") from error
    except OSError as error:
        if not type(error).__module__.startswith("requests"):  # a file of ours, not an answer of the artifact server
            raise
        raise WorkError(f"the artifacts of {without_password(uri)} failed: {_why(error, uri)}") from error
    finally:
        mlflow.set_tracking_uri(before)
        mlflow.set_registry_uri(registry)
        if named is None:  # MLflow sets the variable itself, and the next call would take it for the user's word
            os.environ.pop(_STORE, None)


def _reach(mlflow: Any, uri: str) -> None:
    try:
        _open_file(uri)
        with _environment(_FIRST_CALL):
            mlflow.MlflowClient().search_experiments(max_results=1)
    except Exception as error:  # every kind of store has failures of its own
        raise WorkError(
            f"the MLflow store {without_password(uri)} cannot be reached: {_why(error, uri)}; "
            "name another by MLFLOW_TRACKING_URI"
        ) from error


def _open_file(uri: str) -> None:
    """Open an SQLite store and change nothing: MLflow would try for two minutes where that fails."""
    path = uri.removeprefix("sqlite:///").partition("?")[0]
    if uri.startswith("sqlite:///") and not path.startswith("file:"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=20)) as connection:
            connection.execute("PRAGMA schema_version")


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables for a while, but for those that the user chose."""
    ours = {name: value for name, value in values.items() if os.environ.get(name) == _PATIENCE[name]}
    os.environ.update(ours)
    try:
        yield
    finally:
        os.environ.update({name: _PATIENCE[name] for name in ours})


def _why(error: BaseException, uri: str) -> str:
    return network_words(first_line(error).replace(uri, without_password(uri)).split(". ")[0])


def network_words(text: str) -> str:
    """Return what a network's failure comes down to, or ``text`` where it is something else."""
    return next((words for sign, words in _NETWORK.items() if sign in text), text)


def experiment_id(mlflow: Any, name: str) -> str:
    """Return the experiment's id, making it when it is new.

    Artifacts of an SQLite store go to the folder ``mlartifacts`` beside its file, wherever the command is run.
    """
    found = mlflow.get_experiment_by_name(name)
    if found is not None:
        if found.lifecycle_stage == "deleted":
            raise WorkError(f"the MLflow experiment {name} was deleted; restore it or choose another --experiment")
        return str(found.experiment_id)
    uri = mlflow.get_tracking_uri()
    location = None
    if uri.startswith("sqlite:///"):
        location = (Path(uri.removeprefix("sqlite:///")).resolve().parent / "mlartifacts").as_uri()
    return str(mlflow.create_experiment(name, artifact_location=location))


@contextmanager
def logged_run(mlflow: Any, experiment: str, name: str, run_id: str | None = None) -> Iterator[Any]:
    """Open a run (or reopen ``run_id``); whatever goes wrong inside, it ends as FAILED with the reason as a tag."""
    where = {"run_id": run_id} if run_id else {"experiment_id": experiment_id(mlflow, experiment), "run_name": name}
    run = None
    try:
        with uninterrupted():
            run = mlflow.start_run(**where)
        yield run
    except BaseException as error:
        if run is not None:
            with uninterrupted():
                _end_as_failed(mlflow, str(error) or type(error).__name__)
        raise
    with uninterrupted():
        mlflow.end_run()


def _end_as_failed(mlflow: Any, reason: str) -> None:
    try:
        mlflow.set_tag("laps_sd.failure", reason[:500])
    finally:
        mlflow.end_run("FAILED")


def log_numbers(mlflow: Any, figures: dict[str, Any], prefix: str = "") -> None:
    """Log every number of nested ``figures`` as a metric, names joined by dots; None is left out."""
    mlflow.log_metrics(dict(_numbers(figures, prefix)))


def _numbers(figures: dict[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    for key, value in figures.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _numbers(value, f"{name}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield name, float(value)


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says, or its name; SQLAlchemy's preface says nothing of the error."""
    lines = [line for line in str(error).strip().splitlines() if not line.startswith("(raised as a result of")]
    return lines[0] if lines else type(error).__name__


def without_password(uri: str) -> str:
    """Return a store's address as it may be shown."""
    scheme, separator, rest = uri.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
