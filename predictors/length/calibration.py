"""Recalibration of survival curves on requests that the model has not seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laps_sd.predictors.arrays import Bools, Floats, Ints, shaped
from laps_sd.predictors.censoring import kaplan_meier

#: Closer together near 0 and 1, where an overconfident curve puts most of what happens.
_KNOTS = np.concatenate([[0.0], 1.0 / (1.0 + np.exp(-np.linspace(-6.0, 6.0, 41))), [1.0]])


def survival_at(tokens: Floats, survival: Floats, edges: Ints) -> Floats:
    """Return S_i(tokens_i), linear inside buckets; ``survival`` has shape (n, B + 1)."""
    t = np.clip(tokens, 0.0, float(edges[-1]))
    right = np.clip(np.searchsorted(edges, t, side="left"), 1, len(edges) - 1)
    row = np.arange(len(t))
    low, high = survival[row, right - 1], survival[row, right]
    share = (t - edges[right - 1]) / (edges[right] - edges[right - 1])
    value: Floats = low + (high - low) * share
    return value


@dataclass(frozen=True)
class Calibration:
    """A monotone map from predicted to observed survival probability.

    If the curves were right, S_i(L_i) would be uniform (the probability integral transform); a Kaplan-Meier estimate
    of what it really is, censored where L_i is, corrects every curve alike (Kuleshov, Fenner and Ermon 2018, with
    censoring as for Cox-Snell residuals). In distribution, intervals then cover what they claim.

    Attributes
    ----------
    predicted, observed : arrays, shape (m,)
        Increasing knots of the map, from 0 to 1.
    """

    predicted: Floats
    observed: Floats

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Calibration:
        """Rebuild the map from the arrays of a state; ValueError where they are none."""
        predicted = shaped(arrays, "predicted", None)
        observed = shaped(arrays, "observed", len(predicted))
        if len(predicted) < 2 or (np.diff(predicted) <= 0).any() or (np.diff(observed) < 0).any():
            raise ValueError("its calibration is no increasing map")
        if min(predicted[0], observed[0]) < 0 or max(predicted[-1], observed[-1]) > 1:
            raise ValueError("its calibration maps something that is no probability")
        return cls(predicted, observed)

    @classmethod
    def identity(cls) -> Calibration:
        """Return the map that changes nothing."""
        return cls(np.array([0.0, 1.0]), np.array([0.0, 1.0]))

    @classmethod
    def fit(cls, tokens: Floats, censored: Bools, survival: Floats, edges: Ints) -> Calibration:
        """Fit on held-out requests: their lengths (tokens) and predicted curves, shape (n, B + 1)."""
        # Half a token back: lengths are whole, curves are not.
        return cls.of_residuals(1.0 - survival_at(tokens - 0.5, survival, edges), censored)

    @classmethod
    def of_residuals(cls, residual: Floats, censored: Bools) -> Calibration:
        """Fit on held-out requests of which ``residual`` is 1 - S_i(L_i): uniform if the curves were right."""
        times, alive = kaplan_meier(residual, censored)
        reached = np.interp(_KNOTS, np.concatenate([[0.0], times, [1.0]]), np.concatenate([[1.0], alive, [0.0]]))
        # A few hundred requests say little about each knot: lean on the identity as if it were 20 more of them.
        weight = len(residual) / (len(residual) + 20.0)
        observed = weight * reached + (1.0 - weight) * (1.0 - _KNOTS)
        observed[0], observed[-1] = 1.0, 0.0
        return cls((1.0 - _KNOTS)[::-1].copy(), np.minimum.accumulate(observed)[::-1].copy())

    def apply(self, survival: Floats) -> Floats:
        """Return calibrated survival, the shape of ``survival``."""
        calibrated: Floats = np.interp(survival, self.predicted, self.observed)
        return calibrated
