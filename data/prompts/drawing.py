"""Seeded choices, in the few shapes that the kinds of prompts need."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


class Drawing:
    """Draws from word lists with one generator, so that a seed fixes every prompt."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def one(self, items: Sequence[T]) -> T:
        """Return one of the items."""
        return items[int(self._rng.integers(len(items)))]

    def some(self, items: Sequence[T], count: int) -> list[T]:
        """Return ``count`` different items in random order."""
        return [items[int(i)] for i in self._rng.permutation(len(items))[:count]]

    def number(self, low: int, high: int) -> int:
        """Return a whole number between ``low`` and ``high``, both included."""
        return int(self._rng.integers(low, high + 1))
