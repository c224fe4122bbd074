"""What can be known to be wrong before any work: refused then, and not after it with a run that failed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isfinite
from pathlib import Path

import numpy as np

from laps_sd.data import RequestRecord
from laps_sd.errors import InputError
from laps_sd.predictors import PredictorBundle
from laps_sd.predictors.acceptance.base import acceptance_predictor
from laps_sd.predictors.arrays import Ints
from laps_sd.predictors.fingerprint import shift
from laps_sd.predictors.fit import ended, reads_encoder
from laps_sd.predictors.rows import MIN_ROWS

_ALIAS = re.compile(r"(?!latest$|v\d+$)[\w-]{1,255}", re.IGNORECASE)


def check_model(features: str, predictor: str, encoder: str | None, acceptance: str = "prompt") -> None:
    """Refuse names that are not registered, and an encoder that cannot be loaded or would not be read.

    Raises
    ------
    InputError
        One sentence with what is wrong.
    WorkError
        A package that the encoder needs is not installed.
    """
    acceptance_predictor(acceptance)
    if reads_encoder(features, predictor):
        from laps_sd.predictors.features.encoder import Encoder, default_encoder

        if encoder is not None and encoder.startswith(("/", ".")) and not Path(encoder).is_dir():
            raise InputError(f"no text encoder at {encoder}: there is no such folder")
        Encoder.load(encoder or default_encoder())
    elif encoder is not None:
        raise InputError("an encoder is read by the features embedding and by the predictor transformer only")


def check_names(experiment: str, register: str | None = None, alias: str = "champion") -> None:
    """Refuse names that MLflow would refuse, some of them only after the training.

    Raises
    ------
    InputError
        One sentence with what is wrong.
    """
    if not experiment.strip() or len(experiment) > 500:
        raise InputError(f"an experiment needs a name of 1 to 500 characters, got {experiment!r:.60}")
    if register is None:
        return
    if not register.strip() or register.strip(".") == "" or len(register) > 256 or re.search("[/:]", register):
        raise InputError(f"a registered model needs a name of 1 to 256 characters without / or :, got {register!r:.60}")
    if not _ALIAS.fullmatch(alias):
        raise InputError(
            f"an alias has letters, digits, _ and - only and is neither latest nor v with a number, got {alias!r:.60}"
        )


def check_folds(records: Sequence[RequestRecord], folds: Sequence[Ints]) -> None:
    """Refuse folds of which one leaves too little to train on.

    Raises
    ------
    InputError
        Too few requests, or no ending, outside of a fold.
    """
    natural = np.array([ended(r) for r in records])
    for test in folds:
        rest = np.setdiff1d(np.arange(len(records)), test)
        if rest.size < MIN_ROWS:
            raise InputError(f"a fold leaves {rest.size} requests to train on, fewer than {MIN_ROWS}: collect more")
        if not natural[rest].any():
            raise InputError(
                "a fold leaves only requests that were cut (finish_reason length or abort) to train on; "
                "collect with a larger max_new_tokens"
            )


def check_fingerprint(bundle: PredictorBundle, records: Sequence[RequestRecord]) -> None:
    """Refuse a bundle whose manifest, which no checksum covers, says nothing readable about its training data.

    Raises
    ------
    InputError
        The records cannot be compared with it.
    """
    try:
        found = shift(bundle.manifest["training"]["fingerprint"], records[:1])
        if not all(isfinite(index) for index in found["features"].values()):
            raise ValueError("shares below 0")
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"the bundle is damaged (no fingerprint of its training data in its manifest: {error!r}); train it again"
        ) from error
