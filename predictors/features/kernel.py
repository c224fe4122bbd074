"""Kernel ridge regression with a Gaussian kernel on a few landmarks (Nyström; Williams and Seeger 2001).

With a few hundred training prompts a smooth function of all features orders lengths better than trees do; with many
thousand, the landmarks bound time and memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from laps_sd.predictors.arrays import Floats, number, shaped

#: Rows taken at a time, which bounds memory.
CHUNK = 8192


class KernelRidge:
    """f(x) = mean + sum_m weights[m] exp(-gamma |x - landmarks[m]|²).

    Parameters
    ----------
    landmarks : array, shape (m, d)
    weights : array, shape (m,)
    mean : float
        Mean of the target.
    gamma : float
        Inverse squared width of the kernel.
    """

    def __init__(self, landmarks: Floats, weights: Floats, mean: float, gamma: float) -> None:
        self.landmarks = landmarks
        self.weights = weights
        self.mean = mean
        self.gamma = gamma
        self._factor = (-2.0 * landmarks).T
        self._squares = np.einsum("ij,ij->i", landmarks, landmarks)

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], landmarks: str, weights: str, width: int, constants: Mapping[str, Any]
    ) -> Self:
        """Rebuild from a state: names of its arrays, d, and ``mean`` and ``gamma``.

        Raises
        ------
        ValueError
            They do not fit each other.
        """
        points = shaped(arrays, landmarks, None, width)
        mean, gamma = number(constants, "mean"), number(constants, "gamma", 1e-9)
        return cls(points, shaped(arrays, weights, len(points)), mean, gamma)

    def predict(self, rows: Floats) -> Floats:
        """Return f at ``rows``, shape (n,)."""
        out = np.empty(len(rows))
        for start in range(0, len(rows), CHUNK):
            out[start : start + CHUNK] = self.similarity(rows[start : start + CHUNK]) @ self.weights
        out += self.mean
        return out

    def similarity(self, rows: Floats) -> Floats:
        """Return the kernel between ``rows`` and the landmarks, shape (n, m)."""
        squared = rows @ self._factor
        squared += self._squares
        squared += np.einsum("ij,ij->i", rows, rows)[:, None]
        np.maximum(squared, 0.0, out=squared)
        squared *= -self.gamma
        return np.exp(squared, out=squared)
