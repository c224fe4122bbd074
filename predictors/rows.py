"""What every fit is given: training rows, the options of a bundle, and splits that keep related prompts together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laps_sd.data import PromptRequest
from laps_sd.data.groups.split import fold_rows
from laps_sd.predictors.arrays import Ints

#: Fewer rows than this cannot be split, calibrated and evaluated.
MIN_ROWS = 16


@dataclass(frozen=True)
class FitOptions:
    """What a person chooses for a whole bundle.

    Attributes
    ----------
    features : str
        Registered feature set.
    encoder : str, optional
        Folder of a Hugging Face text encoder; the packaged one when None.
    seed : int
        Seed of everything random.
    """

    features: str = "lexical"
    encoder: str | None = None
    seed: int = 0


def as_requests(X: Sequence[PromptRequest | str]) -> list[PromptRequest]:
    """Return prompts as ``PromptRequest``; plain text is a prompt about which nothing else is known."""
    return [PromptRequest(prompt=x) if isinstance(x, str) else x for x in X]


def grouped_folds(groups: NDArray[Any] | None, n: int, folds: int, seed: int) -> list[Ints]:
    """Partition ``n`` rows into at most ``folds`` index arrays of similar size; a group is never split.

    Rows are split one by one when there are no groups, or only one.

    Parameters
    ----------
    groups : array, shape (n,), optional
        Labels of any type; equal ones belong together.
    n, folds, seed : int

    Returns
    -------
    list of int64 arrays
        The rows of each fold, increasing.
    """
    labels = np.arange(n)
    if groups is not None:
        distinct, inverse = np.unique(np.asarray(groups).astype(str), return_inverse=True)
        labels = inverse if len(distinct) > 1 else labels
    return fold_rows(labels, folds, seed)
