"""Lengths of which some are only known to be longer: the Kaplan-Meier curve, and a normal score of each length."""

from __future__ import annotations

import numpy as np

from laps_sd.predictors.arrays import Bools, Floats


def kaplan_meier(times: Floats, censored: Bools) -> tuple[Floats, Floats]:
    """Return distinct times and the Kaplan-Meier survival just after each (Kaplan and Meier 1958)."""
    distinct, index = np.unique(times, return_inverse=True)
    leaving = np.bincount(index, minlength=len(distinct)).astype(np.float64)
    ended = np.bincount(index, weights=(~censored).astype(np.float64), minlength=len(distinct))
    at_risk = len(times) - np.concatenate([[0.0], np.cumsum(leaving)[:-1]])
    survival: Floats = np.cumprod(1.0 - ended / at_risk)
    return distinct, survival


def normal_scores(tokens: Floats, censored: Bools) -> Floats:
    """Return z with P(length of another request <= length) = Phi(z), in [-3, 3].

    Ranks, because schedulers care for order and lengths are heavy-tailed. A request that was cut is known only to
    be longer, so it gets the mean score of the longer ones, E[Z | Z > z] = phi(z) / (1 - Phi(z)).
    """
    from scipy.special import ndtr, ndtri  # not above: a server calibrates curves and needs no SciPy

    times, survival = kaplan_meier(tokens, censored)
    before = np.concatenate([[1.0], survival[:-1]])
    mid = 1.0 - (before + survival) / 2.0
    z = ndtri(np.clip(mid, 1e-3, 1.0 - 1e-3))[np.searchsorted(times, tokens)]
    longer = np.exp(-(z**2) / 2.0) / np.sqrt(2.0 * np.pi) / (1.0 - ndtr(z))
    scores: Floats = np.where(censored, np.minimum(longer, 3.0), z)
    return scores
