"""From what people type (a folder or an MLflow URI) to a bundle folder."""

from __future__ import annotations

from pathlib import Path

from laps_sd.errors import InputError, WorkError


def resolve_bundle(uri_or_path: str | Path, tracking_uri: str | None = None) -> Path:
    """Return the local folder of a bundle.

    Parameters
    ----------
    uri_or_path : str or Path
        A folder, ``models:/NAME@ALIAS``, ``models:/NAME/VERSION`` or ``runs:/RUN_ID/bundle``.
    tracking_uri : str, optional
        MLflow store; default ``MLFLOW_TRACKING_URI``, else MLflow's own default.

    Raises
    ------
    InputError
        Nothing there.
    WorkError
        The MLflow store cannot be reached, or MLflow is not installed.
    """
    text = str(uri_or_path)
    if not text.startswith(("models:/", "runs:/")):
        path = Path(uri_or_path)
        if not path.is_dir():
            raise InputError(f"no bundle at {path}; make one with `laps-sd train`, or give models:/NAME@ALIAS")
        return path
    raise WorkError("MLflow URIs are not resolved yet")
