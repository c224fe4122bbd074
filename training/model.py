"""A bundle as an MLflow model: signature, input example, loader module."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import laps_sd
from laps_sd.data import RequestRecord
from laps_sd.predictors import PredictorBundle
from laps_sd.training.loader import OUTPUTS

#: Neutral, because the store may be shared and prompts may not be.
_EXAMPLE_PROMPT = "Explain in 50 words why the sky is blue."


def log_model(mlflow: Any, bundle: PredictorBundle, example: RequestRecord) -> str:
    """Log the bundle to the active run as ``bundle`` and return the model's URI."""
    import pandas as pd

    row = {
        "prompt": _EXAMPLE_PROMPT,
        "prompt_tokens": 20,
        "max_new_tokens": 1024,
        "temperature": 0.0,
        "model": example.model or "model",
        "turns": 0,
    }
    with tempfile.TemporaryDirectory(prefix="laps-sd-train-") as work, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow comments on whole-number columns and on the environment
        info = mlflow.pyfunc.log_model(
            name="bundle",
            loader_module="laps_sd.training.loader",
            data_path=str(bundle.save(Path(work) / "bundle")),
            signature=_signature(mlflow),
            input_example=pd.DataFrame([row]),
            pip_requirements=[f"laps-sd=={laps_sd.__version__}"],
        )
    return str(info.model_uri)


def _signature(mlflow: Any) -> Any:
    """Only the prompt is required of a request."""
    from mlflow.types import ColSpec, DataType, Schema

    optional = {
        "prompt_tokens": DataType.long,
        "max_new_tokens": DataType.long,
        "temperature": DataType.double,
        "model": DataType.string,
        "turns": DataType.long,
    }
    inputs = [ColSpec(DataType.string, "prompt")]
    inputs += [ColSpec(kind, name, required=False) for name, kind in optional.items()]
    outputs = [ColSpec(DataType.double, name) for name in OUTPUTS]
    return mlflow.models.ModelSignature(inputs=Schema(inputs), outputs=Schema(outputs))
