"""LAPS-SD: request scheduling for SGLang with speculative decoding.

The public names are loaded on first use: importing ``laps_sd.scheduler`` must cost numpy and nothing more.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "InputError": "laps_sd.errors",
    "LapsError": "laps_sd.errors",
    "WorkError": "laps_sd.errors",
    "RequestRecord": "laps_sd.data",
    "read_records": "laps_sd.data",
    "write_records": "laps_sd.data",
    "canonical_prompt": "laps_sd.data",
    "PredictorBundle": "laps_sd.predictors",
    "Prediction": "laps_sd.scheduler",
    "SurvivalCurve": "laps_sd.scheduler",
    "simulate": "laps_sd.scheduler",
}
__all__ = ["__version__", *sorted(_PUBLIC)]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'laps_sd' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
