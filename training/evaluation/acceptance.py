"""How good acceptance priors and posteriors are: the `acceptance` part of ``laps-sd evaluate``.

Everything is measured with the scheduler's own posterior, fed step by step: what is measured is what is served.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laps_sd.data import RequestRecord, group_folds
from laps_sd.predictors.acceptance.base import AcceptancePrior
from laps_sd.predictors.acceptance.fit import fit_acceptance
from laps_sd.predictors.acceptance.observed import has_acceptance, step_tokens
from laps_sd.predictors.acceptance.strength import CHECKPOINTS, LEAST_REST
from laps_sd.scheduler import Settings
from laps_sd.scheduler.posterior.base import AcceptancePosterior
from laps_sd.scheduler.posterior.factory import make_posterior
from laps_sd.training.evaluation.finished import by_run
from laps_sd.training.evaluation.metrics import kendall_tau

LEVEL = 0.8


def evaluate_acceptance(
    records: Sequence[RequestRecord], priors: Sequence[AcceptancePrior], *, stability: float = Settings().stability
) -> dict[str, Any] | None:
    """Compare priors, and the posteriors that grow from them, with what happened.

    Parameters
    ----------
    records : sequence of RequestRecord
        Finished requests.
    priors : sequence of AcceptancePrior
        What was believed about each before it ran.
    stability : float
        Relative width at which a posterior counts as perceptible; default: that of the scheduler.

    Returns
    -------
    dict or None
        ``n``, ``kendall_tau`` (prior mean against the request's tokens per step), and by steps seen ("0", "4", …) over
        the requests with at least 15 steps left: ``n_rest``; mean absolute percentage errors of the rest's tokens
        per step ``mape_accept_length``, ``…_unseeded`` (the run's mean instead of the prompt's prior) and ``…_raw``
        (running mean alone; null at 0), as shares; ``coverage_80`` and ``width_80`` (tokens per step) of the
        predictive interval of the rest; ``perceptible_share``. Figures that need the order of steps are null where
        only histograms are known. None without acceptance data.
    """
    rows = [(r, p) for r, p in zip(records, priors, strict=True) if has_acceptance(r)]
    if not rows:
        return None
    real = np.array([r.accept_length for r, _ in rows], dtype=np.float64)
    believed = np.array([p.mean for _, p in rows])
    result: dict[str, Any] = {
        "n": len(rows),
        "kendall_tau": kendall_tau(believed, real),
        "least_rest_steps": LEAST_REST,
    }
    by_steps: dict[str, dict[str, float | None]] = {name: {} for name in _NAMES}
    paths = [(_Path(r, p), p) for r, p in rows]
    for seen in CHECKPOINTS:
        reached = [path.at(seen, prior, stability) for path, prior in paths if len(path.tokens) >= seen + LEAST_REST]
        for name in _NAMES:
            by_steps[name][str(seen)] = _figure(name, reached, seen)
    if not by_steps["n_rest"]["0"]:
        by_steps["mape_accept_length"]["0"] = float(np.mean(np.abs(believed - real) / real))
        unseeded = np.array([p.unseeded_mean for _, p in rows])
        by_steps["mape_accept_length_unseeded"]["0"] = float(np.mean(np.abs(unseeded - real) / real))
    return {**result, **by_steps}


_NAMES = (
    "n_rest",
    "mape_accept_length",
    "mape_accept_length_unseeded",
    "mape_accept_length_raw",
    "coverage_80",
    "width_80",
    "perceptible_share",
)
_ERRORS = {"mape_accept_length": "mean", "mape_accept_length_unseeded": "unseeded", "mape_accept_length_raw": "raw"}


class _Path:
    """One request's verify steps."""

    def __init__(self, record: RequestRecord, prior: AcceptancePrior) -> None:
        self.tokens = step_tokens(record)
        self.proposed = proposed_drafts(record, prior.drafts, self.tokens)

    def at(self, seen: int, prior: AcceptancePrior, stability: float) -> dict[str, float]:
        """Return beliefs after ``seen`` steps, and the rest that followed."""
        rest = self.tokens[seen:]
        posterior = start(prior)
        plain = make_posterior(prior.unseeded_mean, prior.unseeded_strength, prior.settings, prior.drafts)
        feed(posterior, self.tokens, self.proposed, 0, seen)
        feed(plain, self.tokens, self.proposed, 0, seen)
        low, high = posterior.predictive_interval(LEVEL, len(rest))
        actual = float(rest.mean())
        return {
            "rest": actual,
            "mean": posterior.mean(),
            "unseeded": plain.mean(),
            "raw": float(self.tokens[:seen].mean()) if seen else np.nan,
            "inside": float(low <= actual <= high),
            "width": high - low,
            "stable": float(posterior.stable(stability)),
        }


def start(prior: AcceptancePrior) -> AcceptancePosterior:
    """Return the posterior that a server starts a request with."""
    return make_posterior(prior.mean, prior.strength, prior.settings, prior.drafts)


def feed(posterior: AcceptancePosterior, tokens: NDArray[Any], proposed: NDArray[Any], first: int, last: int) -> None:
    """Tell a posterior the steps from ``first`` up to ``last``."""
    for i in range(first, last):
        posterior.update(int(tokens[i]) - 1, int(proposed[i]))


def proposed_drafts(record: RequestRecord, drafts: int | None, tokens: NDArray[Any]) -> NDArray[Any]:
    """Return how many drafts each step proposed: as recorded, else the run's draft length."""
    known = np.full(len(tokens), drafts or 0) if record.draft_lengths is None else np.array(record.draft_lengths)
    proposed: NDArray[Any] = np.maximum(known, tokens - 1)
    return proposed


def cross_validated_priors(records: Sequence[RequestRecord], folds: int = 5, seed: int = 0) -> list[AcceptancePrior]:
    """Return each record's prior from models fitted on the other folds; folds never split a group.

    Parameters
    ----------
    records : sequence of RequestRecord
        With prompt text and acceptance data.
    """
    found: dict[int, AcceptancePrior] = {}
    for test in group_folds(records, folds, seed):
        held_out = set(test.tolist())
        model = fit_acceptance([r for i, r in enumerate(records) if i not in held_out], seed=seed)
        priors = by_run([records[i] for i in test], model.priors)
        found.update(zip(test.tolist(), priors, strict=True))
    return [found[i] for i in range(len(records))]


def _figure(name: str, reached: Sequence[dict[str, float]], seen: int) -> float | None:
    if name == "n_rest":
        return len(reached)
    if not reached or (name == "mape_accept_length_raw" and seen == 0):
        return None
    if name in _ERRORS:
        return float(np.mean([abs(row[_ERRORS[name]] - row["rest"]) / row["rest"] for row in reached]))
    column = {"coverage_80": "inside", "width_80": "width", "perceptible_share": "stable"}[name]
    return float(np.mean([row[column] for row in reached]))
