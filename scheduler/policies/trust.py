"""How far predictions are to be believed, from how those of finished requests turned out."""

from __future__ import annotations

from math import log, sqrt

import numpy as np

from laps_sd.scheduler.settings import Settings

#: A correlation of fewer points says nothing.
_LEAST_POINTS = 3
#: Decimals that are kept of the weight.
_DIGITS = 9


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
