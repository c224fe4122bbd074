"""Fitting the kernel ridge; apart from it, because a server needs no SciPy to evaluate one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from laps_sd.predictors.arrays import Floats, Ints
from laps_sd.predictors.features.kernel import CHUNK, KernelRidge


def fit_kernel(
    rows: Floats,
    target: Floats,
    folds: Sequence[Ints],
    *,
    gamma: float,
    penalty: float,
    most_landmarks: int,
    seed: int,
    weight: Floats | None = None,
) -> tuple[KernelRidge, Floats]:
    """Fit on all rows, and predict each fold from the others; ``weight`` counts rows more or less, shape (n,).

    Returns
    -------
    model : KernelRidge
    out_of_fold : array, shape (n,)
    """
    n = len(rows)
    chosen = np.random.default_rng(seed).permutation(n)[:most_landmarks]
    landmarks = np.ascontiguousarray(rows[np.sort(chosen)])
    mean = float(np.average(target, weights=weight))
    root = np.ones(n) if weight is None else np.sqrt(weight)
    probe = KernelRidge(landmarks, np.zeros(len(landmarks)), mean, gamma)
    inner = probe.similarity(landmarks)
    grams, sides = zip(*(_gram(probe, rows[fold], target[fold] - mean, root[fold]) for fold in folds), strict=True)
    gram, side = np.sum(grams, axis=0), np.sum(sides, axis=0)
    out_of_fold = np.empty(n)
    for fold, fold_gram, fold_side in zip(folds, grams, sides, strict=True):
        weights = _solve(gram - fold_gram, inner, side - fold_side, penalty)
        out_of_fold[fold] = KernelRidge(landmarks, weights, mean, gamma).predict(rows[fold])
    return KernelRidge(landmarks, _solve(gram, inner, side, penalty), mean, gamma), out_of_fold


def _gram(probe: KernelRidge, rows: Floats, target: Floats, root: Floats) -> tuple[Floats, Floats]:
    m = len(probe.landmarks)
    gram, side = np.zeros((m, m)), np.zeros(m)
    for start in range(0, len(rows), CHUNK):
        here = slice(start, start + CHUNK)
        kernel = probe.similarity(rows[here]) * root[here, None]
        gram += kernel.T @ kernel
        side += kernel.T @ (target[here] * root[here])
    return gram, side


def _solve(gram: Floats, inner: Floats, side: Floats, penalty: float) -> Floats:
    """Minimise |y - K w|² + penalty w' K_mm w; the jitter keeps near-duplicate landmarks from breaking it."""
    matrix = gram + penalty * inner
    matrix[np.diag_indices_from(matrix)] += 1e-8 * (np.trace(matrix) / len(matrix) + 1.0)
    solution: Floats = cho_solve(cho_factor(matrix, overwrite_a=True), side)
    return solution
