"""Kernel ridge regression with a Gaussian kernel on a few landmarks (Nyström; Williams and Seeger 2001).

With a few hundred training prompts a smooth function of all features orders lengths better than trees do; with many
thousand, the landmarks bound time and memory. Fold predictions come from the same Gram matrices, fold by fold.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from laps_sd.predictors.buckets import Floats, Ints

_CHUNK = 8192


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
        self._squares = np.einsum("ij,ij->i", landmarks, landmarks)

    def predict(self, rows: Floats) -> Floats:
        """Return f at ``rows``, shape (n,)."""
        out = np.empty(len(rows))
        for start in range(0, len(rows), _CHUNK):
            out[start : start + _CHUNK] = self._kernel(rows[start : start + _CHUNK]) @ self.weights
        out += self.mean
        return out

    def _kernel(self, rows: Floats) -> Floats:
        squared = rows @ (-2.0 * self.landmarks.T)
        squared += self._squares
        squared += np.einsum("ij,ij->i", rows, rows)[:, None]
        np.maximum(squared, 0.0, out=squared)
        squared *= -self.gamma
        return np.exp(squared, out=squared)

    @classmethod
    def fit(
        cls,
        rows: Floats,
        target: Floats,
        folds: Sequence[Ints],
        *,
        gamma: float,
        penalty: float,
        most_landmarks: int,
        seed: int,
    ) -> tuple[KernelRidge, Floats]:
        """Fit on all rows, and predict each fold from the others.

        Returns
        -------
        model : KernelRidge
        out_of_fold : array, shape (n,)
        """
        n = len(rows)
        chosen = np.random.default_rng(seed).permutation(n)[:most_landmarks]
        landmarks = np.ascontiguousarray(rows[np.sort(chosen)])
        mean = float(target.mean())
        probe = cls(landmarks, np.zeros(len(landmarks)), mean, gamma)
        inner = probe._kernel(landmarks)
        grams, sides = zip(*(probe._gram(rows[fold], target[fold] - mean) for fold in folds), strict=True)
        gram, side = np.sum(grams, axis=0), np.sum(sides, axis=0)
        out_of_fold = np.empty(n)
        for fold, fold_gram, fold_side in zip(folds, grams, sides, strict=True):
            weights = _solve(gram - fold_gram, inner, side - fold_side, penalty)
            out_of_fold[fold] = cls(landmarks, weights, mean, gamma).predict(rows[fold])
        return cls(landmarks, _solve(gram, inner, side, penalty), mean, gamma), out_of_fold

    def _gram(self, rows: Floats, target: Floats) -> tuple[Floats, Floats]:
        m = len(self.landmarks)
        gram, side = np.zeros((m, m)), np.zeros(m)
        for start in range(0, len(rows), _CHUNK):
            kernel = self._kernel(rows[start : start + _CHUNK])
            gram += kernel.T @ kernel
            side += kernel.T @ target[start : start + _CHUNK]
        return gram, side


def _solve(gram: Floats, inner: Floats, side: Floats, penalty: float) -> Floats:
    """Minimise |y - K w|² + penalty w' K_mm w; the jitter keeps near-duplicate landmarks from breaking it."""
    matrix = gram + penalty * inner
    matrix[np.diag_indices_from(matrix)] += 1e-8 * (np.trace(matrix) / len(matrix) + 1.0)
    solution: Floats = cho_solve(cho_factor(matrix, overwrite_a=True), side)
    return solution
