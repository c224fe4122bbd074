"""Learned word features: TF-IDF with a ridge score and a few latent dimensions, read as one table look-up."""

from __future__ import annotations

from itertools import pairwise, repeat

import numpy as np
from numpy.typing import NDArray

from laps_sd.predictors.buckets import Floats, Ints

#: (word,), a pair of words, or a word with its place: ("^", w) among the first three, ("$", w) among the last three.
Term = tuple[str, ...]
#: What stands for the start and the end of a prompt in a term; no word is one of these.
_MARKS = ("^", "$")


def terms_of(words: list[str]) -> list[Term]:
    """Return words, word pairs and the marked first and last words of a prompt."""
    marked: list[Term] = [("^", word) for word in words[:3]]
    marked += [("$", word) for word in words[-3:]]
    return [*zip(words, strict=True), *pairwise(words), *marked]


class WordTable:
    """A vocabulary, and a row of numbers for each of its terms.

    The features of a prompt are the sum of the rows of its distinct terms, divided by the prompt's TF-IDF norm: the
    same as the ridge prediction and the singular vectors' projection of its (binary) TF-IDF vector.

    Parameters
    ----------
    vocabulary : mapping of Term to int
        Row of each term.
    table : array of float32, shape (V, 1 + dimensions)
        Column 0 is the ridge's weight; rows are scaled by the inverse document frequency.
    squares : array of float32, shape (V,)
        Squared inverse document frequencies, for the norm.
    intercept : float
        Of the ridge.
    """

    def __init__(
        self, vocabulary: dict[Term, int], table: NDArray[np.float32], squares: NDArray[np.float32], intercept: float
    ) -> None:
        self.vocabulary = vocabulary
        self.table = table
        self.squares = squares
        self.intercept = intercept
        # Words become numbers by one look-up each; pairs are then found by binary search among numbers, which is
        # several times faster than hashing pairs of texts.
        words = dict.fromkeys(word for term in vocabulary for word in (*_MARKS, *term))
        self._number = {word: i for i, word in enumerate(words)}
        self._words = max(1, len(words))
        self._single = np.full(self._words, -1, dtype=np.int64)
        pairs = []
        for term, row in vocabulary.items():
            if len(term) == 1:
                self._single[self._number[term[0]]] = row
            else:
                pairs.append((self._number[term[0]] * self._words + self._number[term[1]], row))
        ordered = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
        self._pair_keys, self._pair_rows = ordered[:, 0].copy(), ordered[:, 1].copy()

    @property
    def width(self) -> int:
        """Features per prompt."""
        return int(self.table.shape[1])

    def row(self, words: list[str]) -> Floats:
        """Return the features of one prompt, shape (width,)."""
        row = np.zeros(self.width)
        index = self.rows_of(words)
        if len(index):
            row += np.ones(len(index), dtype=np.float32) @ self.table[index]
            row /= np.sqrt(self.squares[index].sum())
        row[0] += self.intercept
        return row

    def rows_of(self, words: list[str]) -> Ints:
        """Return the rows of a prompt's distinct known terms, increasing: ``terms_of(words)`` looked up."""
        if not words or not self.vocabulary:
            return np.empty(0, dtype=np.int64)
        numbers = np.array(list(map(self._number.get, words, repeat(-1))))
        first, last = (self._number[mark] for mark in _MARKS)
        left = np.concatenate([numbers[:-1], np.full(len(numbers[:3]), first), np.full(len(numbers[-3:]), last)])
        right = np.concatenate([numbers[1:], numbers[:3], numbers[-3:]])
        keys = left * self._words + right
        keys = keys[(left >= 0) & (right >= 0)]
        keys.sort()  # a sorted search stays in the cache
        found = np.concatenate([self._single[numbers[numbers >= 0]], self._pairs_at(keys)])
        found.sort()
        fresh = np.ones(len(found), dtype=np.bool_)
        fresh[1:] = found[1:] != found[:-1]
        rows: Ints = found[fresh & (found >= 0)]
        return rows

    def _pairs_at(self, keys: Ints) -> Ints:
        if not len(self._pair_keys):
            return np.empty(0, dtype=np.int64)
        place = np.minimum(np.searchsorted(self._pair_keys, keys), len(self._pair_keys) - 1)
        rows: Ints = self._pair_rows[place[self._pair_keys[place] == keys]]
        return rows


def encode_terms(vocabulary: dict[Term, int]) -> str:
    """Return the terms in index order, one a line; the words of one are joined by a space, which none contains."""
    return "\n".join(" ".join(term) for term in sorted(vocabulary, key=vocabulary.__getitem__))


def decode_terms(text: str) -> dict[Term, int]:
    """Undo :func:`encode_terms`."""
    return {tuple(line.split(" ")): i for i, line in enumerate(text.split("\n") if text else [])}
