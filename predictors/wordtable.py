"""Learned word features: TF-IDF with a ridge score and a few latent dimensions, read as one table look-up."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from laps_sd.predictors.buckets import Floats

#: (word,), a pair of words, or a word with its place: ("^", w) among the first three, ("$", w) among the last three.
Term = tuple[str, ...]


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

    @property
    def width(self) -> int:
        """Features per prompt."""
        return int(self.table.shape[1])

    def row(self, words: list[str]) -> Floats:
        """Return the features of one prompt, shape (width,)."""
        get = self.vocabulary.get
        found = {i for term in terms_of(words) if (i := get(term)) is not None}
        row = np.zeros(self.width)
        if found:
            # Sorted, because the order of a set and of a sum must not make two runs differ.
            index = np.array(sorted(found))
            row = self.table[index].sum(axis=0, dtype=np.float64) / np.sqrt(self.squares[index].sum())
        row[0] += self.intercept
        return row


def encode_terms(vocabulary: dict[Term, int]) -> str:
    """Return the terms in index order, one a line; the words of one are joined by a space, which none contains."""
    return "\n".join(" ".join(term) for term in sorted(vocabulary, key=vocabulary.__getitem__))


def decode_terms(text: str) -> dict[Term, int]:
    """Undo :func:`encode_terms`."""
    return {tuple(line.split(" ")): i for i, line in enumerate(text.split("\n") if text else [])}
