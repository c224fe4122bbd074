"""Learned word features: TF-IDF with a ridge score and a few latent dimensions, read as one table look-up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, repeat
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from laps_sd.predictors.arrays import Floats, Ints

#: (word,), a pair of words, or a word with its place: ("^", w) among the first three, ("$", w) among the last three.
Term = tuple[str, ...]
#: What stands for the start and the end of a prompt in a term; no word is one of these.
_MARKS = ("^", "$")
#: Latent dimensions that a table may have at most.
_MOST_DIMENSIONS = 4096


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
        self._summed = np.ascontiguousarray(np.column_stack([table, squares]))  # one gather and one sum per prompt
        self.table = self._summed[:, :-1]
        self.squares = self._summed[:, -1]
        self.intercept = intercept
        # Words become numbers by one look-up each; pairs are then found by binary search among numbers, which is
        # several times faster than hashing pairs of texts.
        words = dict.fromkeys(word for term in vocabulary for word in (*_MARKS, *term))
        self._number = {word: i for i, word in enumerate(words)}
        self._words = max(1, len(words))
        self._single = np.full(self._words + 1, -1, dtype=np.int64)  # the last stands for an unknown word, -1
        pairs = []
        for term, row in vocabulary.items():
            if len(term) == 1:
                self._single[self._number[term[0]]] = row
            else:
                pairs.append((self._number[term[0]] * self._words + self._number[term[1]], row))
        pairs.append((np.iinfo(np.int64).max, -1))  # so that a search always ends at a key
        ordered = np.array(sorted(pairs), dtype=np.int64)
        self._pair_keys, self._pair_rows = ordered[:, 0].copy(), ordered[:, 1].copy()

    @classmethod
    def from_arrays(cls, vocabulary: dict[Term, int], arrays: Mapping[str, NDArray[Any]], intercept: float) -> Self:
        """Rebuild from the arrays ``word_table`` and ``word_squares`` of a state; ValueError where they do not fit."""
        table, squares = arrays["word_table"], arrays["word_squares"]
        size = len(vocabulary)
        if table.ndim != 2 or len(table) != size or not 1 <= table.shape[1] <= _MOST_DIMENSIONS:
            raise ValueError("the word table does not fit its vocabulary")
        if squares.shape != (size,) or table.dtype != np.float32 or squares.dtype != np.float32 or (squares <= 0).any():
            raise ValueError("the squares of the word table do not fit it")
        if any(not 1 <= len(term) <= 2 for term in vocabulary):
            raise ValueError("the vocabulary holds what is neither a word nor a pair of words")
        return cls(vocabulary, table, squares, intercept)

    @property
    def width(self) -> int:
        """Features per prompt."""
        return int(self.table.shape[1])

    def row(self, words: list[str]) -> Floats:
        """Return the features of one prompt, shape (width,)."""
        row: Floats = self.rows([words])[0]
        return row

    def rows(self, prompts: Sequence[list[str]]) -> Floats:
        """Return the features of prompts that are given as their words, shape (n, width)."""
        rows = np.zeros((len(prompts), self.width))
        terms, ends = self._terms(prompts)
        found, ones = self._summed.take(terms, axis=0), np.ones(len(terms), dtype=np.float32)
        start = 0
        for row, end in zip(rows, ends, strict=True):
            if end > start:
                total = ones[start:end] @ found[start:end]
                row += total[:-1] / np.sqrt(total[-1])
            start = end
        rows[:, 0] += self.intercept
        return rows

    def _terms(self, prompts: Sequence[list[str]]) -> tuple[Ints, list[int]]:
        """Return the rows of all prompts' terms, one prompt after the other, and where each prompt's rows end."""
        numbers, keys, ends = self._numbers(prompts)
        size = max(1, len(self.vocabulary))
        if len(prompts) == 1:
            keys.sort()  # a sorted search stays in the cache
        found = np.concatenate([self._single.take(numbers), self._pairs_at(keys)])
        if len(prompts) > 1:  # each prompt's rows get a range of their own
            offset = np.repeat(np.arange(len(prompts)) * size, np.diff(ends, prepend=0))
            found += np.where(found >= 0, np.concatenate([offset, offset]), 0)
        found.sort()
        found = found[found.searchsorted(0) :]
        fresh = np.ones(len(found), dtype=np.bool_)
        np.not_equal(found[1:], found[:-1], out=fresh[1:])
        found = found[fresh]
        return found % size, found.searchsorted(np.arange(1, len(prompts) + 1) * size).tolist()

    def _numbers(self, prompts: Sequence[list[str]]) -> tuple[Ints, Ints, list[int]]:
        """Return each prompt's words and again its first and last three, the keys of the pairs that end there, ends.

        The word before, or a mark, is the left one of a pair; where one of the two is unknown its key is negative.
        """
        first, last = (self._number.get(mark, -1) for mark in _MARKS)
        words: list[int] = []
        ends = []
        for prompt in prompts:
            known = list(map(self._number.get, prompt, repeat(-1)))
            words += known + known[:3] + known[-3:]
            ends.append(len(words))
        right = np.array(words, dtype=np.int64)
        keys = np.empty_like(right)
        keys[1:] = right[:-1]
        start = 0
        for prompt, end in zip(prompts, ends, strict=True):
            marked = min(3, len(prompt))
            keys[start : start + 1] = -1
            keys[end - 2 * marked : end - marked] = first
            keys[end - marked : end] = last
            start = end
        keys *= self._words
        keys += right
        keys[right < 0] = -1
        return right, keys, ends

    def _pairs_at(self, keys: Ints) -> Ints:
        """Return the rows of pairs, -1 where a pair is unknown."""
        place = self._pair_keys.searchsorted(keys)
        rows: Ints = self._pair_rows.take(place)
        rows[self._pair_keys.take(place) != keys] = -1
        return rows


def encode_terms(vocabulary: dict[Term, int]) -> str:
    """Return the terms in index order, one a line; the words of one are joined by a space, which none contains."""
    return "\n".join(" ".join(term) for term in sorted(vocabulary, key=vocabulary.__getitem__))


def decode_terms(text: str) -> dict[Term, int]:
    """Undo :func:`encode_terms`."""
    return {tuple(line.split(" ")): i for i, line in enumerate(text.split("\n") if text else [])}
