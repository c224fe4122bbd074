"""Predictors: output length as a survival curve, acceptance as a prior, both from what is known at arrival.

A server loads bundles and needs numpy and LightGBM's library; training needs scikit-learn and SciPy too, imported when
first used.
"""

from importlib import import_module
from typing import Any

from laps_sd.errors import not_installed
from laps_sd.predictors.bundle import PredictorBundle

_LAZY = {"fit_bundle": "laps_sd.predictors.fit"}
__all__ = ["PredictorBundle", "fit_bundle"]  # fit_bundle is loaded on first use


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        try:
            return getattr(import_module(_LAZY[name]), name)
        except ModuleNotFoundError as error:
            raise not_installed(error) from error
    raise AttributeError(f"module 'laps_sd.predictors' has no attribute {name!r}")
