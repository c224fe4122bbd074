"""Find ids that were there before, eight bytes an id."""

from collections.abc import Sequence

import numpy as np

_LARGEST_RUN = 1 << 20


class SeenIds:
    """Remembers ids by Python's own 64-bit hashes, in sorted runs.

    A set of ten million strings takes about a gigabyte, the hashes 80 MB. Two of ten million different ids have the
    same hash with a probability of 3 in a million (birthday bound n²/2⁶⁵).
    """

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []

    def repeated(self, ids: Sequence[str]) -> list[int]:
        """Remember ``ids`` and return the places in it, ascending, of those that were there before."""
        if not ids:
            return []
        hashes = np.fromiter(map(hash, ids), dtype=np.int64, count=len(ids))
        order = np.argsort(hashes, kind="stable")
        ascending = hashes[order]
        old = np.zeros(len(ids), dtype=bool)
        old[1:] = ascending[1:] == ascending[:-1]
        for run in self._runs:
            at = np.searchsorted(run, ascending)
            old |= run[np.minimum(at, run.size - 1)] == ascending
        self._add(ascending[~old])
        return sorted(order[old].tolist())

    def _add(self, run: np.ndarray) -> None:
        """Keep few runs: one no larger than four times the new one is merged into it, up to a size."""
        while self._runs and self._runs[-1].size <= 4 * run.size and self._runs[-1].size < _LARGEST_RUN:
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        if run.size:
            self._runs.append(run)
