"""The number that the smooth learners regress on: a normal score of the output length, censoring included."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri

from laps_sd.predictors.buckets import Bools, Floats, kaplan_meier


def normal_scores(tokens: Floats, censored: Bools) -> Floats:
    """Return z with P(length of another request <= length) = Phi(z), in [-3, 3].

    Ranks, because schedulers care for order and lengths are heavy-tailed. A request that was cut is known only to
    be longer, so it gets the mean score of the longer ones, E[Z | Z > z] = phi(z) / (1 - Phi(z)).
    """
    times, survival = kaplan_meier(tokens, censored)
    before = np.concatenate([[1.0], survival[:-1]])
    mid = 1.0 - (before + survival) / 2.0
    z = ndtri(np.clip(mid, 1e-3, 1.0 - 1e-3))[np.searchsorted(times, tokens)]
    longer = np.exp(-(z**2) / 2.0) / np.sqrt(2.0 * np.pi) / (1.0 - ndtr(z))
    scores: Floats = np.where(censored, np.minimum(longer, 3.0), z)
    return scores
