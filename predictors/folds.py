"""Inner splits that keep related prompts together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from laps_sd.predictors.buckets import Ints


def grouped_folds(groups: NDArray[Any] | None, n: int, folds: int, seed: int) -> list[Ints]:
    """Partition ``n`` rows into at most ``folds`` index arrays of similar size; a group is never split.

    Rows are split one by one when there are no groups, or only one.
    """
    labels = np.arange(n)
    if groups is not None:
        distinct, inverse = np.unique(np.asarray(groups).astype(str), return_inverse=True)
        labels = inverse if len(distinct) > 1 else labels
    sizes = np.bincount(labels)
    order = np.random.default_rng(seed).permutation(len(sizes))
    # Largest first, each to the emptiest fold; the permutation breaks ties.
    order = order[np.argsort(-sizes[order], kind="stable")]
    fold_of, filled = np.empty(len(sizes), dtype=np.int64), np.zeros(min(folds, len(sizes)))
    for label in order:
        fold = int(filled.argmin())
        fold_of[label], filled[fold] = fold, filled[fold] + sizes[label]
    rows = fold_of[labels]
    return [np.flatnonzero(rows == fold) for fold in range(len(filled))]
