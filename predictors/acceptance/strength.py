"""How much a prior is worth, and how sure a posterior may be: fitted by likelihood on held-out requests.

For each request and a few checkpoints h, the posterior after h steps predicts the mean tokens per step of the rest;
what is maximised is the probability of what happened. The formulas are those of
:class:`laps_sd.scheduler.posterior.shrunken.ShrunkenMeanPosterior`, for many requests at once.
What that class does when acceptance changes in mid-request is left out: constants are those of ordinary requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from laps_sd.predictors.acceptance.run_mean import DEFAULT_STRENGTH
from laps_sd.predictors.arrays import Floats
from laps_sd.scheduler.posterior.settings import PosteriorSettings
from laps_sd.scheduler.posterior.shrunken import geometric_variance

CHECKPOINTS = (0, 4, 8, 16, 32)
#: A rest shorter than this says little about a mean.
LEAST_REST = 15
#: Fewer held-out requests than this cannot say how much a prior is worth.
LEAST_REQUESTS = 30
#: More than this tell no more, and cost seconds.
MOST_REQUESTS = 3000

_DISCOUNTS = (1.0, 0.98, 0.95)
_STRENGTHS = np.geomspace(2.0, 256.0, 29)
_START = np.log([DEFAULT_STRENGTH, 1.0, 0.2])
#: Standard deviation of a log constant around its start: a handful of requests must not run off with it.
_PRIOR_SCALE = 1.5
_LOW, _HIGH = np.log([1.0, 0.02, 0.005]), np.log([400.0, 50.0, 1.5])


@dataclass(frozen=True)
class Prefixes:
    """Requests at one checkpoint: what was seen, and what came after.

    Attributes
    ----------
    prior : array, shape (n,)
        Prior mean, tokens per step.
    tokens, weight : arrays, shape (n,)
        Discounted sums of tokens and of steps so far.
    step_variance : array, shape (n,)
        Variance of one step under the truncated geometric law, tokens².
    rest, rest_steps : arrays, shape (n,)
        Mean tokens per step of the rest, and its steps.
    """

    prior: Floats
    tokens: Floats
    weight: Floats
    step_variance: Floats
    rest: Floats
    rest_steps: Floats

    def predict(self, strength: float, dispersion: float, drift: float) -> tuple[Floats, Floats]:
        """Return predicted mean and squared scale of the rest's tokens per step."""
        total = strength + self.weight
        mean = (strength * self.prior + self.tokens) / total
        noise = dispersion * self.step_variance
        return mean, noise / total + noise / self.rest_steps + (drift * (mean - 1.0)) ** 2


def prefixes(priors: Floats, variances: Floats, steps: Sequence[NDArray[Any]], discount: float, seen: int) -> Prefixes:
    """Collect the requests that still had ``LEAST_REST`` steps after ``seen`` ones; ``steps`` are tokens per step."""
    kept = [i for i, tokens in enumerate(steps) if len(tokens) >= seen + LEAST_REST]
    weights = discount ** np.arange(seen - 1, -1, -1.0)
    return Prefixes(
        prior=priors[kept],
        tokens=np.array([float(weights @ steps[i][:seen]) for i in kept]),
        weight=np.full(len(kept), weights.sum()),
        step_variance=variances[kept],
        rest=np.array([float(np.mean(steps[i][seen:])) for i in kept]),
        rest_steps=np.array([float(len(steps[i]) - seen) for i in kept]),
    )


def fit_strength(
    priors: Floats, steps: Sequence[NDArray[Any]], drafts: int | None, *, ordered: bool = True
) -> tuple[float, PosteriorSettings]:
    """Fit κ and the posterior's constants.

    Parameters
    ----------
    priors : array, shape (n,)
        Prior means (tokens per step) of requests that the prior's model did not see.
    steps : sequence of arrays
        Tokens of each verify step of each request; empty where unknown.
    drafts : int, optional
        Most drafts a step accepts.
    ordered : bool
        Whether the steps are in the order in which they happened. If not, they tell how requests differ but not how
        one drifts: only κ is fitted, and drawn half-way to ``DEFAULT_STRENGTH``.

    Returns
    -------
    strength : float
        κ in verify steps.
    settings : PosteriorSettings
        Of kind ``shrunken``; the defaults with fewer than ``LEAST_REQUESTS`` requests that are long enough.
    """
    defaults = PosteriorSettings()
    long = [i for i, tokens in enumerate(steps) if len(tokens) >= LEAST_REST]
    if len(long) < LEAST_REQUESTS:
        return DEFAULT_STRENGTH, defaults
    long = long[:: -(-len(long) // MOST_REQUESTS)]
    priors, steps = priors[long], [steps[i] for i in long]
    variances = np.array([geometric_variance(mean, drafts) for mean in priors.tolist()])
    if not ordered:
        tables = _tables(priors, variances, steps, defaults.discount)
        losses = [_loss(np.log([kappa, defaults.dispersion, defaults.drift]), tables) for kappa in _STRENGTHS]
        # Without their order the fit is off by a factor of up to five either way: it is believed half, in the log.
        return float(np.sqrt(_STRENGTHS[int(np.argmin(losses))] * DEFAULT_STRENGTH)), defaults
    best_loss, best, best_discount = np.inf, np.exp(_START), defaults.discount
    for discount in _DISCOUNTS:
        tables = _tables(priors, variances, steps, discount)
        found = minimize(
            _loss, _START, args=(tables,), method="Nelder-Mead", options={"maxiter": 200, "xatol": 0.02, "fatol": 1e-4}
        )
        if found.fun < best_loss:
            best_loss, best, best_discount = found.fun, np.exp(np.clip(found.x, _LOW, _HIGH)), discount
    strength, dispersion, drift = (float(f"{value:.4g}") for value in best)
    return strength, PosteriorSettings(discount=best_discount, dispersion=dispersion, drift=drift)


def _tables(priors: Floats, variances: Floats, steps: Sequence[NDArray[Any]], discount: float) -> list[Prefixes]:
    tables = [prefixes(priors, variances, steps, discount, seen) for seen in CHECKPOINTS]
    return [table for table in tables if len(table.rest)]


def _loss(logs: Floats, tables: Sequence[Prefixes]) -> float:
    """Mean negative log-likelihood over the checkpoints, Student t with 4 degrees of freedom, plus the prior's."""
    constants = np.exp(np.clip(logs, _LOW, _HIGH))
    total = 0.0
    for table in tables:
        mean, squared = table.predict(*constants)
        squared = np.maximum(squared, 1e-12)
        z2 = (table.rest - mean) ** 2 / squared
        total += float(np.mean(2.5 * np.log1p(z2 / 4.0) + 0.5 * np.log(squared)))
    requests = max(len(table.rest) for table in tables)
    return total / len(tables) + float(np.sum(((logs - _START) / _PRIOR_SCALE) ** 2)) / (2.0 * requests)
