"""From what people type (a folder or an MLflow URI) to a bundle folder."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from laps_sd.errors import InputError
from laps_sd.predictors import PredictorBundle
from laps_sd.predictors.store import MANIFEST
from laps_sd.training.tracking import first_line, mlflow_module, store_uri, tracking, without_password

_SCHEMES = ("models:/", "runs:/")


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
        The MLflow store cannot be reached, or MLflow is not installed.
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
        The MLflow store cannot be reached, or MLflow is not installed.
    """
    if not str(uri_or_path).startswith(_SCHEMES):
        return read(resolve_bundle(uri_or_path))
    with tempfile.TemporaryDirectory(prefix="laps-sd-bundle-") as work:
        return read(_download(_full(str(uri_or_path)), tracking_uri, Path(work)))


def _full(uri: str) -> str:
    """``runs:/RUN_ID`` stands for the bundle that the run logged."""
    short = uri.startswith("runs:/") and "/" not in uri.removeprefix("runs:/").strip("/")
    return f"{uri.rstrip('/')}/bundle" if short else uri


def _download(uri: str, tracking_uri: str | None, target: Path) -> Path:
    store = store_uri(tracking_uri)
    mlflow = mlflow_module()
    if store.startswith("sqlite:///") and not Path(store.removeprefix("sqlite:///")).is_file():
        # MLflow would make an empty store and then not find the model in it.
        raise InputError(f"{uri}: there is no MLflow store {store}; set MLFLOW_TRACKING_URI to the one it is in")
    with tracking(tracking_uri):
        try:
            local = Path(mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=str(target)))
        except (mlflow.exceptions.MlflowException, OSError) as error:
            raise InputError(
                f"no model {uri} in the MLflow store {without_password(store)}: {first_line(error)}"
            ) from error
    found = sorted(local.rglob(MANIFEST))
    if not found:
        raise InputError(f"{uri} is not a laps-sd bundle: it holds no {MANIFEST}")
    return found[0].parent
