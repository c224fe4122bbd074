"""One fitted run of the acceptance predictor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import exp, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laps_sd.predictors.acceptance.base import LEAST_STRENGTH, MOST_STRENGTH, MOST_TOKENS, AcceptancePrior
from laps_sd.predictors.acceptance.effects import Effects
from laps_sd.predictors.arrays import Floats, number
from laps_sd.predictors.features.kernel import KernelRidge
from laps_sd.scheduler.posterior.settings import PosteriorSettings
from laps_sd.scheduler.posterior.truncated_geometric import acceptance_rate, mean_tokens


@dataclass(frozen=True)
class AcceptanceRun:
    """One fitted run.

    Attributes
    ----------
    model, draft : str, optional
        Target model, and draft algorithm with its model.
    drafts : int, optional
        Most drafts one step accepts.
    rows : int
        Training requests.
    center : float
        Mean log tokens per step, outliers pulled in.
    kernel : KernelRidge, optional
        Deviation from ``center`` by prompt; None where the prompt did not help held-out requests.
    effects : Effects, optional
        Deviation by single numbers of the request; None where they did not help.
    strength, unseeded_strength : float
        κ with and without the prompt, verify steps.
    settings : PosteriorSettings
    """

    model: str | None
    draft: str | None
    drafts: int | None
    rows: int
    center: float
    kernel: KernelRidge | None
    strength: float
    unseeded_strength: float
    settings: PosteriorSettings
    effects: Effects | None = None

    @property
    def reads_prompt(self) -> bool:
        """Whether the prompt or the request's numbers say anything."""
        return self.kernel is not None or self.effects is not None

    def means(self, points: Floats, numbers: Floats) -> Floats:
        """Return tokens per step, shape (n,).

        Parameters
        ----------
        points : array, shape (n, d)
            `FeatureSet.points` of the requests.
        numbers : array, shape (n, functions)
            Their `FeatureSet.effect_columns`.
        """
        logs = np.full(len(points), self.center)
        if self.effects is not None:
            logs += self.effects.predict(numbers)
        if self.kernel is not None:
            logs += self.kernel.predict(points)
        most = log(MOST_TOKENS if self.drafts is None else self.drafts + 1.0)
        means: Floats = np.exp(np.minimum(np.maximum(logs, 0.0), most))
        return means


def prior_at(run: AcceptanceRun, mean: float, drafts: int | None) -> AcceptancePrior:
    """Return the prior of a request whose predicted mean is ``mean``, with ``drafts`` (the run's own when None)."""
    unseeded = exp(run.center)
    if drafts is None or run.drafts is None or drafts == run.drafts:
        most = run.drafts if drafts is None else drafts
        return AcceptancePrior(mean, run.strength, run.settings, most, unseeded, run.unseeded_strength)
    trained = run.drafts

    def other(tokens: float) -> float:
        return mean_tokens(acceptance_rate(tokens, trained), drafts)

    # The law is only roughly true: the further it moves the mean, the less the prior is worth.
    doubt = 1.0 + 10.0 * abs(log(other(mean) / mean))
    return AcceptancePrior(
        other(mean), run.strength / doubt, run.settings, drafts, other(unseeded), run.unseeded_strength / doubt
    )


def run_meta(run: AcceptanceRun) -> dict[str, Any]:
    """Return the JSON values of a run; its kernel's arrays are stored beside them."""
    meta: dict[str, Any] = {
        "model": run.model,
        "draft": run.draft,
        "drafts": run.drafts,
        "rows": run.rows,
        "center": run.center,
        "strength": run.strength,
        "unseeded_strength": run.unseeded_strength,
        "settings": asdict(run.settings),
    }
    if run.kernel is not None:
        meta["kernel"] = {"mean": run.kernel.mean, "gamma": run.kernel.gamma}
    if run.effects is not None:
        meta["effects"] = len(run.effects.knots)
    return meta


def run_arrays(run: AcceptanceRun, i: int) -> dict[str, NDArray[Any]]:
    """Return the arrays of the ``i``-th run."""
    arrays: dict[str, NDArray[Any]] = {}
    if run.kernel is not None:
        arrays |= {f"{i}/landmarks": run.kernel.landmarks, f"{i}/weights": run.kernel.weights}
    if run.effects is not None:
        arrays |= run.effects.to_arrays(f"{i}/effects/")
    return arrays


def run_of(
    meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], i: int, width: int, functions: int
) -> AcceptanceRun:
    """Rebuild the ``i``-th run; its points have ``width`` coordinates, and ``functions`` numbers may have effects.

    Raises
    ------
    ValueError
        They are none that a fit leaves behind.
    """
    if not all(meta[name] is None or isinstance(meta[name], str) for name in ("model", "draft")):
        raise ValueError("the model or the draft of an acceptance run is no text")
    constants = dict(meta["settings"])
    kind = constants.pop("kind")
    for name in constants:
        number(constants, name)
    run = AcceptanceRun(
        model=meta["model"],
        draft=meta["draft"],
        drafts=None if meta["drafts"] is None else int(number(meta, "drafts", 0, MOST_TOKENS - 1)),
        rows=int(number(meta, "rows", 1)),
        center=number(meta, "center", 0.0, log(MOST_TOKENS)),
        kernel=None,
        strength=number(meta, "strength", LEAST_STRENGTH, MOST_STRENGTH),
        unseeded_strength=number(meta, "unseeded_strength", LEAST_STRENGTH, MOST_STRENGTH),
        settings=PosteriorSettings(kind=kind, **constants),
    )
    kernel, effects = meta.get("kernel"), meta.get("effects")
    if effects is not None:
        if effects != functions:
            raise ValueError(f"a run knows the effects of {effects!r:.20} numbers, the features have {functions}")
        run = replace(run, effects=Effects.from_arrays(arrays, f"{i}/effects/", functions))
    if kernel is None:
        return run
    if not width:
        raise ValueError("a run reads the prompt, but there are no features")
    landmarks, weights = f"{i}/landmarks", f"{i}/weights"
    return replace(run, kernel=KernelRidge.from_arrays(arrays, landmarks, weights, width, kernel))
