"""Splits that keep what belongs together on one side.

Two rows share a group when their ``group`` is the same, or when their prompts are equal once case, spacing,
punctuation and numbers are set aside, or when they are near-duplicates: most of their word shingles agree.
"""

import hashlib
import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from laps_sd.data.schema import RequestRecord
from laps_sd.errors import InputError


def normalised(prompt: str) -> str:
    """Return what makes a prompt itself: its words, without case, spacing, punctuation and numbers."""
    folded = unicodedata.normalize("NFKC", prompt).casefold()
    return " ".join(re.sub(r"\d+", "0", word) for word in re.findall(r"\w+", folded))


def group_of(record: RequestRecord) -> str:
    """Return the group of one record by itself: its ``group``, else its normalised prompt, else its own id."""
    if record.group is not None:
        return f"group:{record.group}"
    if record.prompt is None:
        return f"request:{record.request_id}"
    text = normalised(record.prompt) or record.prompt
    return f"prompt:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def groups_of(records: Sequence[RequestRecord]) -> np.ndarray:
    """Return the group of each record as whole numbers, shape (n,), numbered by first appearance."""
    names: dict[str, int] = {}
    return np.array([names.setdefault(group_of(record), len(names)) for record in records], dtype=np.int64)


def group_folds(records: Sequence[RequestRecord], k: int, seed: int) -> list[np.ndarray]:
    """Return the test rows of each of ``k`` folds: every row once, every group in one fold, sizes nearly equal."""
    groups = groups_of(records)
    sizes = np.bincount(groups, minlength=0)
    if k < 2 or sizes.size < k:
        raise InputError(f"{k} folds need at least two folds and as many groups of prompts, there are {sizes.size}")
    order = np.random.default_rng(seed).permutation(sizes.size)
    order = order[np.argsort(-sizes[order], kind="stable")]
    fold_of = np.empty(sizes.size, dtype=np.int64)
    load = np.zeros(k, dtype=np.int64)
    for group in order:
        fold = int(np.argmin(load))
        fold_of[group] = fold
        load[fold] += sizes[group]
    return [np.flatnonzero(fold_of[groups] == fold) for fold in range(k)]


def split(
    records: Sequence[RequestRecord], test_share: float, seed: int
) -> tuple[list[RequestRecord], list[RequestRecord]]:
    """Split into (train, test), whole groups only, with about ``test_share`` of the rows in test."""
    if not 0 < test_share < 1:
        raise InputError(f"the share of test rows must lie between 0 and 1, got {test_share}")
    groups = groups_of(records)
    sizes = np.bincount(groups, minlength=0)
    if sizes.size < 2:
        raise InputError(f"a split needs at least two groups of prompts, there are {sizes.size}")
    order = np.random.default_rng(seed).permutation(sizes.size)
    filled = np.cumsum(sizes[order])
    wanted = test_share * len(records)
    count = int(np.clip(np.searchsorted(filled, wanted) + 1, 1, sizes.size - 1))
    in_test = np.zeros(sizes.size, dtype=bool)
    in_test[order[:count]] = True
    test = in_test[groups]
    return [r for r, t in zip(records, test, strict=True) if not t], [
        r for r, t in zip(records, test, strict=True) if t
    ]
