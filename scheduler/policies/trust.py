"""How far predictions are to be believed, from how those of finished requests turned out."""

from __future__ import annotations

from math import log, sqrt

import numpy as np

from laps_sd.scheduler.settings import Settings

#: A correlation of fewer points says nothing.
_LEAST_POINTS = 3
#: Decimals that are kept of the weight.
_DIGITS = 9
#: What a predicted acceptance is worth before anything is known, and the weight of that: a sum of squared deviations of
#: log accept lengths. Sixteen requests whose accept lengths differ by a quarter outweigh it.
_PRIOR_WORTH, _PRIOR_SPREAD = 0.5, 1.0
#: What is worth so little more or less is worth the same.
_LEAST_CHANGE = 0.15


class PredictionTrust:
    """Correlation of log predicted and log real steps, shrunk, as a weight of predictions.

    Attributes
    ----------
    value : float
        0 to 1: the weight of a prediction, as of the last review.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._moments = np.zeros(6)  # n, Σx, Σy, Σxx, Σyy, Σxy
        self.value = settings.most_trust if settings.trust else 1.0

    def observe(self, predicted_steps: float, steps: float) -> None:
        """Count a finished request of which so many verify steps were predicted; old ones fade."""
        x, y = log(predicted_steps), log(steps)
        self._moments *= 1 - 1 / self._settings.memory
        self._moments += (1, x, y, x * x, y * y, x * y)

    def correlation(self) -> float:
        """Correlation of log predicted and log real steps, shrunk towards a good one while little is known.

        Finished requests whose predictions were all alike say little about how well others are ranked: they count by
        the spread of the predictions.
        """
        s = self._settings
        n, x, y, xx, yy, xy = self._moments
        if n < _LEAST_POINTS:
            return s.trust_prior_correlation
        spread_x, spread_y = xx - x * x / n, yy - y * y / n
        r = (xy - x * y / n) / sqrt(spread_x * spread_y) if min(spread_x, spread_y) > 1e-9 else 0.0
        weight = min(n, spread_x / s.trust_spread**2)
        return float((weight * r + s.trust_prior * s.trust_prior_correlation) / max(weight + s.trust_prior, 1e-9))

    def review(self) -> None:
        """Compute ``value`` anew."""
        if self._settings.trust:
            low, high = self._settings.trust_low, self._settings.trust_high
            share = min(max((self.correlation() - low) / (high - low), 0.0), 1.0)
            self.value = round(share * self._settings.most_trust, _DIGITS)  # logarithms differ between processors


class AcceptanceWorth:
    """What a predicted acceptance is worth: the slope of (log predicted length - log real steps) on its logarithm.

    1: steps are the predicted length over the predicted accept length. Below: long answers are predicted too short
    where drafts are predicted to do well, or acceptance is not predictable. A wrong order costs as much as requests are
    long, so that each counts by the square of its predicted steps.

    Attributes
    ----------
    value : float
        0 to 1; 1 before the first look, then shrunk towards one half while little is known. All that waits is placed
        anew when it changes: so it is looked at when there is twice the evidence, and a small difference is none.
    """

    def __init__(self, settings: Settings) -> None:
        self._kept = 1 - 1 / settings.memory
        self._moments = np.zeros(5)  # n, Σx, Σy, Σxx, Σxy
        self._predicted = 0.0  # mean predicted steps
        self._seen = self._next_look = 0
        self._memory = settings.memory
        self.value = 1.0
        self._fixed = not settings.weigh_acceptance

    def observe(self, length: float, accept_length: float, steps: float) -> None:
        """Count a finished request: predicted tokens, predicted accept length, real verify steps."""
        if self._fixed:
            return
        x, y, predicted = log(accept_length), log(length / steps), length / accept_length
        self._seen += 1
        self._predicted += (predicted - self._predicted) / self._seen
        weight = (predicted / self._predicted) ** 2
        self._moments *= self._kept
        self._moments += (weight, weight * x, weight * y, weight * x * x, weight * x * y)

    def review(self) -> None:
        """Compute ``value`` anew."""
        n, x, y, xx, xy = self._moments
        if self._fixed or n <= 0 or self._seen < self._next_look:
            return
        self._next_look = self._seen + min(self._seen, self._memory)
        slope = (xy - x * y / n + _PRIOR_WORTH * _PRIOR_SPREAD) / (xx - x * x / n + _PRIOR_SPREAD)
        worth = float(min(max(slope, 0.0), 1.0))
        if abs(worth - self.value) > _LEAST_CHANGE:
            self.value = round(worth, 1)
