"""Predictors: output length as a survival curve, acceptance as a prior, both from what is known at arrival."""

from laps_sd.predictors.bundle import PredictorBundle
from laps_sd.predictors.fit import fit_bundle

__all__ = ["PredictorBundle", "fit_bundle"]
