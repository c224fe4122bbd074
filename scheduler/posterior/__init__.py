"""Belief about the acceptance of one request, updated at each verify step: three models behind one protocol."""

from laps_sd.scheduler.posterior.base import AcceptancePosterior
from laps_sd.scheduler.posterior.factory import make_posterior
from laps_sd.scheduler.posterior.settings import PosteriorSettings

__all__ = ["AcceptancePosterior", "PosteriorSettings", "make_posterior"]
