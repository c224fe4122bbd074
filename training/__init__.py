"""Training and evaluation, logged in MLflow: the only room that imports it, and only when a run is logged."""

from laps_sd.training.oof import oof_predictions
from laps_sd.training.resolve import resolve_bundle

__all__ = ["oof_predictions", "resolve_bundle"]
