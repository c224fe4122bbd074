"""Training and evaluation, logged in MLflow: the only room that imports it, and only when a run is logged."""

from importlib import import_module
from typing import Any

from laps_sd.errors import not_installed
from laps_sd.training.resolve import load_bundle, pinned, resolve_bundle

#: Loaded on first use: a server that only resolves a URI needs no scikit-learn.
_LAZY = {
    "TrainResult": "laps_sd.training.run",
    "train": "laps_sd.training.run",
    "evaluate": "laps_sd.training.evaluation.run",
    "run_evaluation": "laps_sd.training.evaluation.run",
    "predict_finished": "laps_sd.training.evaluation.finished",
    "oof_predictions": "laps_sd.training.evaluation.out_of_fold",
}
__all__ = ["load_bundle", "pinned", "resolve_bundle", *sorted(_LAZY)]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        try:
            return getattr(import_module(_LAZY[name]), name)
        except ModuleNotFoundError as error:
            raise not_installed(error) from error
    raise AttributeError(f"module 'laps_sd.training' has no attribute {name!r}")
