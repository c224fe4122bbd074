"""The online Bayesian updater of a request's acceptance: one factory, three models behind one protocol.

>>> posterior = make_posterior(prior_mean=2.5, strength=16, max_correct_drafts=5)
>>> posterior.update(k=5, n=5)
>>> posterior.mean() > 2.5
True
"""

from __future__ import annotations

from laps_sd.scheduler.posterior.base import AcceptancePosterior
from laps_sd.scheduler.posterior.beta import TruncatedGeometricPosterior
from laps_sd.scheduler.posterior.dirichlet import DirichletPosterior
from laps_sd.scheduler.posterior.settings import PosteriorSettings
from laps_sd.scheduler.posterior.shrunken import ShrunkenMeanPosterior

#: Assumed until the first step tells how many drafts are really proposed.
DEFAULT_DRAFTS = 5


def make_posterior(
    prior_mean: float,
    strength: float,
    settings: PosteriorSettings | None = None,
    max_correct_drafts: int | None = None,
) -> AcceptancePosterior:
    """Start the belief about one request's accept length.

    Parameters
    ----------
    prior_mean
        Predicted tokens per verify step, bonus token included; at least 1.
    strength
        κ > 0, the weight of that prediction in verify steps.
    settings
        Model and constants; default :class:`PosteriorSettings`.
    max_correct_drafts
        Most drafts one step can accept (n); None when unknown, then learned from the steps.

    Raises
    ------
    ValueError
        The prior is below 1 or not finite, or the strength is not positive.
    """
    if not 1.0 <= prior_mean < 1e6:
        raise ValueError(f"prior accept length must be at least 1 token per step, got {prior_mean}")
    if not 0.0 < strength < 1e9:
        raise ValueError(f"prior strength must be positive, got {strength}")
    if max_correct_drafts is not None and max_correct_drafts < 0:
        raise ValueError(f"max_correct_drafts must not be negative, got {max_correct_drafts}")
    settings = settings or PosteriorSettings()
    if settings.kind == "shrunken":
        if max_correct_drafts is not None:
            prior_mean = min(prior_mean, max_correct_drafts + 1.0)
        return ShrunkenMeanPosterior(prior_mean, strength, settings, max_correct_drafts)
    drafts = DEFAULT_DRAFTS if max_correct_drafts is None else max_correct_drafts
    if settings.kind == "beta":
        return TruncatedGeometricPosterior(prior_mean, strength, settings, drafts)
    return DirichletPosterior(prior_mean, strength, settings, drafts)
