"""From what people type (a folder or an MLflow URI) to a bundle folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from laps_sd.errors import InputError, WorkError
from laps_sd.predictors import PredictorBundle
from laps_sd.predictors.store import MANIFEST
from laps_sd.training.tracking import (
    check_store,
    first_line,
    mlflow_module,
    network_words,
    store_uri,
    tracking,
    without_password,
)

_SCHEMES = ("models:/", "runs:/")
#: Seconds that a download may take, and that an artifact server may say nothing.
LIMIT_S, SILENCE_S = 120, 20


def resolve_bundle(uri_or_path: str | Path, tracking_uri: str | None = None) -> Path:
    """Return the local folder of a bundle.

    Parameters
    ----------
    uri_or_path : str or Path
        A folder, ``models:/NAME@ALIAS``, ``models:/NAME/VERSION`` or ``runs:/RUN_ID/bundle`` (``runs:/RUN_ID`` for
        short).
    tracking_uri : str, optional
        MLflow store; default ``MLFLOW_TRACKING_URI``, else ``mlflow.db`` in the working directory.

    Returns
    -------
    Path
        The folder itself, or a downloaded copy in the temporary directory.

    Raises
    ------
    InputError
        There is no such folder or model.
    WorkError
        The MLflow store cannot be reached, the files of a model it knows cannot be read (within ``LIMIT_S`` seconds),
        or MLflow is not installed.
    """
    text = str(uri_or_path)
    if not text.startswith(_SCHEMES):
        path = Path(uri_or_path).expanduser()
        if not path.is_dir():
            raise InputError(f"no bundle at {path}; make one with `laps-sd train`, or give models:/NAME@ALIAS")
        return path
    target = tempfile.mkdtemp(prefix="laps-sd-bundle-")
    try:
        return _download(_full(text), tracking_uri, Path(target))
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def load_bundle(
    uri_or_path: str | Path,
    tracking_uri: str | None = None,
    *,
    read: Callable[[Path], PredictorBundle] = PredictorBundle.load,
) -> PredictorBundle:
    """Load a bundle from a folder or from MLflow, and keep no copy of what was downloaded.

    Parameters
    ----------
    uri_or_path, tracking_uri
        As of :func:`resolve_bundle`.
    read : callable
        From the folder to the bundle.

    Raises
    ------
    InputError
        There is no such bundle, it is damaged, or a newer version wrote it.
    WorkError
        The MLflow store cannot be reached, the files of a model it knows cannot be read (within ``LIMIT_S`` seconds),
        or MLflow is not installed.
    """
    if not str(uri_or_path).startswith(_SCHEMES):
        return read(resolve_bundle(uri_or_path))
    with tempfile.TemporaryDirectory(prefix="laps-sd-bundle-") as work:
        return read(_download(_full(str(uri_or_path)), tracking_uri, Path(work)))


def pinned(uri: str, tracking_uri: str | None = None) -> str:
    """Return ``models:/NAME/VERSION`` of what ``models:/NAME@ALIAS`` names now; any other name as it is.

    Raises
    ------
    InputError
        The store knows no such model.
    WorkError
        The MLflow store cannot be reached, or MLflow is not installed.
    """
    if not uri.startswith("models:/") or "@" not in uri:
        return uri
    store = store_uri(tracking_uri)
    mlflow = mlflow_module()
    check_store(store)
    name, _, alias = uri.removeprefix("models:/").strip("/").rpartition("@")
    with tracking(tracking_uri), _known(mlflow, uri, store):
        return f"models:/{name}/{mlflow.MlflowClient().get_model_version_by_alias(name, alias).version}"


def _full(uri: str) -> str:
    """``runs:/RUN_ID`` stands for the bundle that the run logged."""
    short = uri.startswith("runs:/") and "/" not in uri.removeprefix("runs:/").strip("/")
    return f"{uri.rstrip('/')}/bundle" if short else uri


def _download(uri: str, tracking_uri: str | None, target: Path) -> Path:
    store = store_uri(tracking_uri)
    mlflow = mlflow_module()
    check_store(store)
    with tracking(tracking_uri):
        place = _place(mlflow, uri, store)
        reason = _copy_local(place, target) if is_local(place) else _fetch(uri, store, target)
    if reason is not None:
        raise WorkError(f"{uri} is registered, but its files cannot be read from {without_password(place)}: {reason}")
    found = sorted(target.rglob(MANIFEST))
    if not found:
        raise InputError(f"{uri} is not a laps-sd bundle: it holds no {MANIFEST}")
    return found[0].parent


def _place(mlflow: Any, uri: str, store: str) -> str:
    """Ask the store where the files of a model are.

    Raises
    ------
    InputError
        The store knows no such model.
    """
    client = mlflow.MlflowClient()
    scheme, _, rest = uri.partition(":/")
    name, _, path = rest.strip("/").partition("/")
    with _known(mlflow, uri, store):
        if scheme == "runs":
            return _place_of_run(client, client.get_run(name), path)
        if "@" in rest:
            name, _, alias = rest.strip("/").rpartition("@")
            path = str(client.get_model_version_by_alias(name, alias).version)
        if not path:
            return str(client.get_logged_model(name).artifact_location)
        if not path.isdigit():
            raise InputError(f"{uri}: expected models:/NAME@ALIAS, models:/NAME/VERSION or runs:/RUN_ID/bundle")
        return str(client.get_model_version_download_uri(name, path))


@contextmanager
def _known(mlflow: Any, uri: str, store: str) -> Iterator[None]:
    """Say in one sentence that the store knows no such model."""
    try:
        yield
    except mlflow.exceptions.MlflowException as error:
        if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            raise
        raise InputError(
            f"no model {uri} in the MLflow store {without_password(store)}: {first_line(error)}"
        ) from error


def _place_of_run(client: Any, run: Any, path: str) -> str:
    """A logged model has a place of its own, other artifacts are in the run's."""
    models = run.outputs.model_outputs if run.outputs is not None else []
    for model in (client.get_logged_model(output.model_id) for output in models):
        if model.name == path:
            return str(model.artifact_location)
    return f"{run.info.artifact_uri}/{path}"


def is_local(place: str) -> bool:
    """Whether artifacts at ``place`` are files of this machine."""
    return urlsplit(place).scheme in ("", "file")


def _copy_local(place: str, target: Path) -> str | None:
    """Copy a folder into ``target``; return why that cannot be done, or None."""
    folder = Path(unquote(urlsplit(place).path))
    if not folder.is_dir():
        return "there is no such folder"
    try:
        shutil.copytree(folder, target, dirs_exist_ok=True)
    except OSError as error:  # shutil.Error too, which lists what went wrong with each file
        return first_line(error)
    return None


def _fetch(uri: str, store: str, target: Path) -> str | None:
    """Download into ``target`` in a child process; return why that cannot be done, or None.

    A child can be ended: MLflow's downloads run in threads that Python waits for at its end, and a server that sends a
    few bytes a second keeps them busy for ever.
    """
    code = "import sys, mlflow; mlflow.artifacts.download_artifacts(artifact_uri=sys.argv[1], dst_path=sys.argv[2])"
    environment = {
        **os.environ,
        "MLFLOW_TRACKING_URI": store,
        "MLFLOW_REGISTRY_URI": store,
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": str(SILENCE_S),
    }
    command = [sys.executable, "-P", "-c", code, uri, str(target)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)  # noqa: S603
    except subprocess.TimeoutExpired:
        return f"the download has not ended after {LIMIT_S} s"
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines() or ["the download was ended"]
    return network_words(lines[-1].partition(": ")[2] or lines[-1])
