"""From request records to a bundle."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

import laps_sd
from laps_sd.data import PromptRequest, RequestRecord, group_of
from laps_sd.errors import InputError
from laps_sd.predictors.baselines import ConstantLength
from laps_sd.predictors.bundle import PredictorBundle
from laps_sd.predictors.length import LengthModel
from laps_sd.predictors.run_mean import RunMeanAcceptance

FEATURES = ("lexical", "embedding")
PREDICTORS = ("hazard", "transformer", "constant", "prompt_length", "asked_for")


def fit_bundle(
    records: Sequence[RequestRecord], *, features: str = "lexical", predictor: str = "hazard", seed: int = 0
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
    seed : int
        Seed of every split and every learner: same records, same seed, same bundle.

    Raises
    ------
    InputError
        The records cannot train a model: no text, too few rows, no natural ending.
    """
    rows = usable(records)
    requests = [PromptRequest.from_record(r) for r in rows]
    length = make_length(features, predictor, seed)
    length.fit(
        requests,
        np.array([r.output_tokens for r in rows], dtype=np.float64),
        censored=np.array([r.censored for r in rows], dtype=np.bool_),
        groups=np.array([group_of(r) for r in rows]),
    )
    acceptance = RunMeanAcceptance.fit_records(rows)
    manifest: dict[str, Any] = {
        "created_by": {"laps_sd": laps_sd.__version__, "python": sys.version.split()[0]},
        "features": features,
        "predictor": predictor,
        "seed": seed,
        "training": {"n": len(rows), "n_censored": sum(r.censored for r in rows)},
    }
    return PredictorBundle(length, acceptance, manifest)


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


def make_length(features: str, predictor: str, seed: int) -> LengthModel:
    """Return the unfitted length model of these names."""
    if features not in FEATURES:
        raise InputError(f"unknown features {features!r}; choose one of {', '.join(FEATURES)}")
    if predictor not in PREDICTORS:
        raise InputError(f"unknown predictor {predictor!r}; choose one of {', '.join(PREDICTORS)}")
    return ConstantLength()
