"""Output length as a survival curve: the registered predictors, their estimators, buckets and calibration.

A new predictor is one class derived from :class:`CurveModel`. What ends in ``curves`` is fitted and runs in a server;
the estimators beside it learn and need scikit-learn.
"""

from laps_sd.predictors.length.buckets import log_edges, pooled_hazard, quantiles, survival_of
from laps_sd.predictors.length.curves import CurveModel, length_predictor

__all__ = ["CurveModel", "length_predictor", "log_edges", "pooled_hazard", "quantiles", "survival_of"]
