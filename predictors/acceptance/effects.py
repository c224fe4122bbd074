"""What single numbers of a request do to its accept length: a sum of functions of one number each.

The kernel compares prompts as wholes, so what one number does alone it sees only faintly: drafts that fail on long
contexts, or at a high temperature, do so whatever the prompt says. Each function is linear between a few knots at
quantiles, fitted by penalised least squares (Eilers and Marx 1996) and constant beyond the last knot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from laps_sd.predictors.arrays import Floats, Ints, shaped

#: Knots of a function: at quantiles, so that each piece rests on as many requests.
_KNOTS = 9
#: Penalties in requests' worth: on the bends of a function, and on its height.
_BEND, _HEIGHT = 1.0, 0.5
#: Rounds of pulling in outliers and fitting again.
_ROUNDS = 3


@dataclass(frozen=True)
class Effects:
    """Fitted functions.

    Attributes
    ----------
    knots, heights : tuple of arrays
        For each number its increasing knots, and the logarithm by which the accept length is raised there.
    """

    knots: tuple[Floats, ...]
    heights: tuple[Floats, ...]

    def predict(self, numbers: Floats) -> Floats:
        """Return the sum of the functions, shape (n,), at ``numbers``, shape (n, functions)."""
        total = np.zeros(len(numbers))
        for column, knots, heights in zip(numbers.T, self.knots, self.heights, strict=True):
            total += np.interp(column, knots, heights)
        return total

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Return one array of two rows per function, for a state."""
        parts = enumerate(zip(self.knots, self.heights, strict=True))
        return {f"{prefix}{k}": np.stack(pair) for k, pair in parts}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], prefix: str, functions: int) -> Self:
        """Rebuild from :meth:`to_arrays`'s result; ValueError where that is none."""
        found = [shaped(arrays, f"{prefix}{k}", 2, None) for k in range(functions)]
        if any((np.diff(knots) <= 0).any() for knots, _ in found):
            raise ValueError("the knots of an effect do not increase")
        return cls(tuple(knots for knots, _ in found), tuple(heights for _, heights in found))


def fit_effects(
    numbers: Floats, target: Floats, weight: Floats, folds: Sequence[Ints], limit: float
) -> tuple[Effects, Floats]:
    """Fit on all rows, and predict each fold from the others.

    Parameters
    ----------
    numbers : array, shape (n, functions)
    target : array, shape (n,)
        Logarithms, around 0.
    weight : array, shape (n,)
    folds : sequence of index arrays
        Partition of the rows.
    limit : float
        Robust standard deviations beyond which a request is pulled in: the few that loop or copy.

    Returns
    -------
    effects : Effects
    out_of_fold : array, shape (n,)
    """
    everyone, held_out = np.arange(len(target)), np.empty(len(target))
    for test in folds:
        rest = np.setdiff1d(everyone, test)
        held_out[test] = _fit(numbers[rest], target[rest], weight[rest], limit).predict(numbers[test])
    return _fit(numbers, target, weight, limit), held_out


def _fit(numbers: Floats, target: Floats, weight: Floats, limit: float) -> Effects:
    knots = tuple(np.unique(np.quantile(column, np.linspace(0.0, 1.0, _KNOTS))) for column in numbers.T)
    basis = np.column_stack([_hats(column, k) for column, k in zip(numbers.T, knots, strict=True)])
    penalty = _HEIGHT * np.eye(basis.shape[1])
    start = 0
    for k in knots:
        bends = np.diff(np.eye(len(k)), 2, axis=0)
        penalty[start : start + len(k), start : start + len(k)] += _BEND * bends.T @ bends
        start += len(k)
    weighted = basis * weight[:, None]
    gram, seen = basis.T @ weighted + penalty, target
    for _ in range(_ROUNDS):
        heights = np.linalg.solve(gram, weighted.T @ seen)
        fitted = basis @ heights
        seen = fitted + pulled_in(target - fitted, limit)
    return Effects(knots, tuple(np.split(heights, np.cumsum([len(k) for k in knots])[:-1])))


def _hats(column: Floats, knots: Floats) -> Floats:
    """Return the values at ``column`` of the functions that are 1 at one knot and 0 at the others."""
    return np.column_stack([np.interp(column, knots, unit) for unit in np.eye(len(knots))])


def pulled_in(values: Floats, limit: float) -> Floats:
    """Pull the few outliers to within ``limit`` robust standard deviations of the median."""
    median = float(np.median(values))
    spread = 1.4826 * float(np.median(np.abs(values - median)))
    if spread == 0.0:
        return values
    clipped: Floats = np.clip(values, median - limit * spread, median + limit * spread)
    return clipped
