"""Accept length as a prior from the prompt: the registered predictors, and what finished records say about acceptance.

A new predictor is one class derived from :class:`AcceptanceModel`.
"""

from laps_sd.predictors.acceptance.base import AcceptanceModel, AcceptancePrior, acceptance_predictor

__all__ = ["AcceptanceModel", "AcceptancePrior", "acceptance_predictor"]
