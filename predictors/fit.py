"""From request records to a bundle."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

import laps_sd
from laps_sd.data import PromptRequest, RequestRecord, group_names, group_of
from laps_sd.errors import InputError
from laps_sd.extensions import ACCEPTANCE_PREDICTORS, PREDICTORS
from laps_sd.predictors.acceptance.base import acceptance_predictor
from laps_sd.predictors.bundle import PredictorBundle
from laps_sd.predictors.features.base import feature_set
from laps_sd.predictors.features.encoder import default_encoder
from laps_sd.predictors.fingerprint import fingerprint
from laps_sd.predictors.length.curves import CurveModel, length_predictor
from laps_sd.predictors.length.estimator import RegisteredLength
from laps_sd.predictors.progress.fit import fit_refiner
from laps_sd.predictors.rows import MIN_ROWS, FitOptions
from laps_sd.scheduler import SurvivalCurve

#: How much more often than the usual prompt one may count.
_MOST_REPEATS = 5


def fit_bundle(
    records: Sequence[RequestRecord],
    *,
    features: str = "lexical",
    predictor: str = "hazard",
    acceptance: str = "prompt",
    seed: int = 0,
    encoder: str | None = None,
    refine: bool = True,
) -> PredictorBundle:
    """Fit the length and the acceptance predictor on finished requests.

    Parameters
    ----------
    records : sequence of RequestRecord
        Requests; those without prompt text are left out, and of a prompt that is repeated again and again some
        (:func:`thinned`).
    features : str
        Registered feature set: ``lexical`` (microseconds per prompt), ``embedding`` (a frozen encoder, milliseconds)
        or another package's.
    predictor : str
        Registered length predictor: ``hazard``, ``transformer``, a baseline or another package's.
    acceptance : str
        Registered acceptance predictor: ``prompt``, ``run_mean`` or another package's.
    encoder : str, optional
        Folder of a Hugging Face text encoder for ``embedding`` and ``transformer``; default MiniLM.
    seed : int
        Seed of every split and every learner: same records, same seed, same bundle.
    refine : bool
        Learn, where the records say what their answers had said, to refine lengths in flight: three more fits of the
        length predictor, whose held-out curves it corrects.

    Raises
    ------
    InputError
        The records cannot train a model (no text, too few rows, no natural ending), or a name is not registered.
    """
    needs_encoder, prior = reads_encoder(features, predictor), acceptance_predictor(acceptance)
    everything = usable(records)
    own = thinned([r for r in everything if r.own_length])
    rows = [*own, *thinned([r for r in everything if not r.own_length])]  # the latter teach acceptance only
    groups = group_names(rows)

    def learn_length(known: Sequence[RequestRecord], names: Sequence[str]) -> CurveModel:
        return (
            RegisteredLength(predictor, features, encoder, seed)
            .fit(
                [PromptRequest.from_record(r) for r in known],
                np.array([r.output_tokens for r in known], dtype=np.float64),
                censored=np.array([r.censored for r in known], dtype=np.bool_),
                groups=np.array(names),
            )
            .model_
        )

    def held_out(known: Sequence[RequestRecord], others: Sequence[RequestRecord]) -> list[SurvivalCurve]:
        return learn_length(known, group_names(known)).curves([PromptRequest.from_record(r) for r in others])

    length = learn_length(own, groups if len(own) == len(rows) else group_names(own))
    refinement = fit_refiner(own, held_out, seed) if refine else None
    fitted = prior.fit(rows, length.features, FitOptions(features, encoder, seed), groups)
    manifest: dict[str, Any] = {
        "created_by": _versions(),
        "features": features,
        "predictor": predictor,
        "acceptance": acceptance,
        "packages": {
            "predictor": PREDICTORS.package(predictor),
            "acceptance": ACCEPTANCE_PREDICTORS.package(acceptance),
        },
        "encoder": Path(encoder or default_encoder()).name if needs_encoder else None,
        "seed": seed,
        "refinement": None if refinement is None else {"checkpoints": list(refinement.checkpoints)},
        "prompt": "last user turn, without chat template (laps_sd.data.canonical_prompt)",
        "training": {
            "n": len(everything),
            "n_fitted": len(rows),
            "n_censored": sum(r.censored for r in everything),
            "n_forced": sum(not r.own_length for r in everything),
            "fingerprint": fingerprint(everything),
        },
    }
    return PredictorBundle(length, fitted, manifest, refinement)


def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("numpy", "lightgbm", "scikit-learn")}
    return {"laps_sd": laps_sd.__version__, "python": platform.python_version(), **packages}


def ended(record: RequestRecord) -> bool:
    """Whether the model ended the answer itself: what a length is learned from at last."""
    return record.own_length and not record.censored


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


def thinned(records: Sequence[RequestRecord]) -> list[RequestRecord]:
    """Return records in which no prompt counts more than five times as often as the usual one.

    A health probe that is sent 480 times beside 120 other requests would decide the pooled curve and the calibration of
    all of them. Of the records of one prompt (numbers in it aside) at most five times the median number of records of a
    prompt are kept: those at evenly spaced ranks of the length.

    Parameters
    ----------
    records : sequence of RequestRecord
        With prompt text.

    Returns
    -------
    list of RequestRecord
        In their order.
    """
    places: dict[str, list[int]] = {}
    for i, record in enumerate(records):
        places.setdefault(group_of(record.replace(group=None)), []).append(i)
    usual = float(np.median([len(same) for same in places.values()])) if places else 1.0
    kept: list[int] = []
    for same in places.values():
        count = min(len(same), ceil(_MOST_REPEATS * usual))
        ranked = sorted(same, key=lambda i: (records[i].output_tokens, i))
        kept += [ranked[round(place)] for place in np.linspace(0, len(same) - 1, count)]
    chosen = [records[i] for i in sorted(kept)]
    if len(chosen) < MIN_ROWS or not any(map(ended, chosen)):
        return list(records)
    return chosen


def reads_encoder(features: str, predictor: str) -> bool:
    """Whether these need a text encoder.

    Raises
    ------
    InputError
        One of them is not registered.
    """
    reads, length = feature_set(features).reads_encoder, length_predictor(predictor)
    return length.reads_encoder or (length.reads_features and reads)
