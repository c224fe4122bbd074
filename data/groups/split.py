"""Splits that keep what belongs together on one side.

Rows belong together when their ``group`` is the same or their prompts are equal but for case, spacing and punctuation.
Among rows without a ``group`` numbers are set aside too, and near-duplicates
(:mod:`laps_sd.data.groups.similar`) are joined.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from laps_sd.data.groups.similar import near_duplicates
from laps_sd.data.records.schema import RequestRecord
from laps_sd.errors import InputError


def normalised(prompt: str) -> str:
    """Return the words of a prompt: without case, spacing and punctuation, in one form of Unicode."""
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", prompt).casefold()))


def group_of(record: RequestRecord) -> str:
    """Return the group of one record by itself: its ``group``, else its normalised prompt, else its own id.

    Near-duplicates need all records: see :func:`groups_of`.
    """
    if record.group is not None:
        return f"group:{record.group}"
    if record.prompt is None:
        return f"request:{record.request_id}"
    return _prompt_key(_without_numbers(normalised(record.prompt)) or record.prompt)


def groups_of(records: Sequence[RequestRecord]) -> NDArray[np.int64]:
    """Return the group of each record as whole numbers, shape (n,), counted by first appearance."""
    joined = _Joined(len(records))
    first: dict[str, int] = {}
    loose: list[int] = []
    texts: list[str] = []
    for place, record in enumerate(records):
        joined.join(first.setdefault(group_of(record), place), place)
        if record.prompt is None:
            continue
        text = normalised(record.prompt)
        # The same words in two named groups are the same prompt all the same.
        joined.join(first.setdefault(_prompt_key("=" + (text or record.prompt)), place), place)
        if record.group is None:
            loose.append(place)
            texts.append(_without_numbers(text))
    for a, b in near_duplicates(texts):
        joined.join(loose[a], loose[b])
    return joined.numbered()


def group_names(records: Sequence[RequestRecord]) -> list[str]:
    """Return the group of each record by name: what :func:`group_of` says of the group's first record."""
    first: dict[int, str] = {}
    return [first.setdefault(int(g), group_of(r)) for g, r in zip(groups_of(records), records, strict=True)]


def group_folds(records: Sequence[RequestRecord], k: int, seed: int) -> list[NDArray[np.int64]]:
    """Return the test rows of each of ``k`` folds: every row once, every group in one fold, sizes nearly equal.

    Raises
    ------
    InputError
        Fewer than two folds, or fewer groups than folds.
    """
    groups = groups_of(records)
    sizes = np.bincount(groups)
    if k < 2 or sizes.size < k:
        raise InputError(
            f"{k} folds need at least two folds and as many groups of prompts; there are {sizes.size} groups"
        )
    return fold_rows(groups, k, seed)


def fold_rows(labels: NDArray[np.int64], k: int, seed: int) -> list[NDArray[np.int64]]:
    """Partition rows into at most ``k`` folds of similar size; rows with the same label stay together.

    Parameters
    ----------
    labels : array of int64, shape (n,)
        Group of each row, whole numbers from 0 without gaps.
    k : int
        Folds aimed at; fewer when there are fewer groups.
    seed : int
        Decides between groups of equal size.

    Returns
    -------
    list of int64 arrays
        The rows of each fold, increasing.
    """
    sizes = np.bincount(labels)
    fold_of, load = np.empty(sizes.size, dtype=np.int64), np.zeros(min(k, sizes.size), dtype=np.int64)
    order = np.random.default_rng(seed).permutation(sizes.size)
    for group in order[np.argsort(-sizes[order], kind="stable")]:  # large ones first, so that small ones even out
        fold_of[group] = int(np.argmin(load))
        load[fold_of[group]] += sizes[group]
    return [np.flatnonzero(fold_of[labels] == fold) for fold in range(load.size)]


def split(
    records: Sequence[RequestRecord], test_share: float, seed: int, *, of_groups: bool = False
) -> tuple[list[RequestRecord], list[RequestRecord]]:
    """Split into (train, test), whole groups only and none empty.

    Parameters
    ----------
    records : sequence of RequestRecord
    test_share : float
        Share of the rows in test, as nearly as groups allow.
    seed : int
        Decides which groups are in test.
    of_groups : bool
        Take the share of the groups instead: one large group then counts as one.

    Raises
    ------
    InputError
        The share is not between 0 and 1, or there is only one group.
    """
    if not 0 < test_share < 1:
        raise InputError(f"the share of test rows must lie between 0 and 1, got {test_share}")
    groups = groups_of(records)
    sizes = np.bincount(groups)
    if sizes.size < 2:
        raise InputError(f"a split needs at least two groups of prompts; there are {sizes.size}")
    in_test = np.zeros(sizes.size, dtype=bool)
    if of_groups:
        sizes = np.ones_like(sizes)
    wanted, taken = test_share * int(sizes.sum()), 0
    for group in np.random.default_rng(seed).permutation(sizes.size):
        # Take a group only when that brings the share nearer: one large group must not swallow the training rows.
        if abs(taken + sizes[group] - wanted) < abs(taken - wanted):
            in_test[group] = True
            taken += sizes[group]
    if not in_test.any():
        in_test[int(np.argmin(sizes))] = True
    elif in_test.all():
        in_test[int(np.argmin(sizes))] = False
    test = in_test[groups]
    train_rows = [record for record, t in zip(records, test, strict=True) if not t]
    test_rows = [record for record, t in zip(records, test, strict=True) if t]
    return train_rows, test_rows


def _without_numbers(words: str) -> str:
    return re.sub(r"\d+", "0", words)


def _prompt_key(text: str) -> str:
    return f"prompt:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


class _Joined:
    """Disjoint sets of places (union by path halving)."""

    def __init__(self, size: int) -> None:
        self._parent = list(range(size))

    def _root(self, place: int) -> int:
        parent = self._parent
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place

    def join(self, a: int, b: int) -> None:
        a, b = self._root(a), self._root(b)
        self._parent[max(a, b)] = min(a, b)

    def numbered(self) -> NDArray[np.int64]:
        numbers: dict[int, int] = {}
        roots: Iterable[int] = (self._root(place) for place in range(len(self._parent)))
        return np.array([numbers.setdefault(root, len(numbers)) for root in roots], dtype=np.int64)
