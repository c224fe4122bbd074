"""The acceptance predictor: what a prompt says about tokens per verify step, and how much that is worth.

One model per *run* (target model, draft, draft length), because acceptance on one draft says little about another.
A server evaluates it with numpy alone; fitting is in :mod:`laps_sd.predictors.acceptance.fit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from laps_sd.data import PromptRequest, RequestRecord
from laps_sd.predictors.acceptance.base import AcceptanceModel, AcceptancePrior
from laps_sd.predictors.acceptance.run import AcceptanceRun, prior_at, run_arrays, run_meta, run_of
from laps_sd.predictors.arrays import Floats
from laps_sd.predictors.features.base import FeatureSet, nested_features, nested_state
from laps_sd.predictors.rows import FitOptions
from laps_sd.predictors.state import State
from laps_sd.scheduler.posterior.settings import PosteriorSettings

#: Weight (verify steps) of the average over known drafts as the prior of an unknown one: little.
UNKNOWN_STRENGTH = 4.0


class PromptAcceptance(AcceptanceModel):
    """Prior means and strengths from prompts, for every run seen in training.

    Parameters
    ----------
    features : FeatureSet, optional
        Fitted features of the prompt; None when no run reads the prompt.
    runs : sequence of AcceptanceRun
        At least one, the largest first.
    """

    kind = "prompt"

    def __init__(self, features: FeatureSet | None, runs: Sequence[AcceptanceRun]) -> None:
        if not runs:
            raise ValueError("an acceptance model needs at least one run")
        if features is None and any(run.reads_prompt for run in runs):
            raise ValueError("a run reads the prompt, but there are no features")
        self.features: FeatureSet | None = features
        self.runs = tuple(runs)
        self._reads_prompt = any(run.reads_prompt for run in self.runs)

    @classmethod
    def fit(
        cls,
        records: Sequence[RequestRecord],
        features: FeatureSet | None,
        options: FitOptions,
        groups: Sequence[str] | None = None,
    ) -> AcceptanceModel:
        """Learn; a :class:`RunMeanAcceptance` where no record carries acceptance data. See the base class."""
        from laps_sd.predictors.acceptance.fit import fit_acceptance  # not above: it needs scikit-learn

        return fit_acceptance(records, features, options.seed, groups)

    def priors(
        self,
        requests: Sequence[PromptRequest],
        *,
        draft: str | None = None,
        max_correct_drafts: int | None = None,
        rows: Floats | None = None,
    ) -> list[AcceptancePrior]:
        """Return the prior of each request; see :meth:`AcceptanceModel.priors`.

        An unknown draft gets the average over the known ones and little strength; another draft length than in
        training is converted by the truncated geometric law.
        """
        found: list[AcceptancePrior | None] = [None] * len(requests)
        places: dict[str | None, list[int]] = {}
        for i, request in enumerate(requests):
            places.setdefault(request.model, []).append(i)
        points, numbers = self._read(requests, rows)
        for model, chosen in places.items():
            run = self.find_run(model, draft, max_correct_drafts)
            if run is None:
                unknown = self._unknown(max_correct_drafts)
                for i in chosen:
                    found[i] = unknown
                continue
            means = run.means(points[chosen], numbers[chosen])
            for i, mean in zip(chosen, means.tolist(), strict=True):
                found[i] = prior_at(run, mean, max_correct_drafts)
        return [prior for prior in found if prior is not None]

    def find_run(
        self, model: str | None = None, draft: str | None = None, max_correct_drafts: int | None = None
    ) -> AcceptanceRun | None:
        """Return the run that fits best: the draft must match, the model and the draft length should.

        None is a wildcard; a draft that is named but unknown has no run. Among equals the largest wins.
        """
        known = [run for run in self.runs if draft is None or _same(run.draft, draft)]
        if not known:
            return None
        return max(
            known,
            key=lambda run: (
                model is not None and _same(run.model, model),
                max_correct_drafts is not None and run.drafts == max_correct_drafts,
                run.rows,
            ),
        )

    def posterior_settings(
        self, draft: str | None = None, max_correct_drafts: int | None = None, model: str | None = None
    ) -> PosteriorSettings:
        """Return the fitted constants of the posterior for a server's draft; the defaults for an unknown one."""
        run = self.find_run(model, draft, max_correct_drafts)
        return PosteriorSettings() if run is None else run.settings

    def _read(self, requests: Sequence[PromptRequest], rows: Floats | None) -> tuple[Floats, Floats]:
        """Return the points and the numbers of requests, without coordinates where no run reads them."""
        if self.features is None or not len(requests) or not self._reads_prompt:
            return np.empty((len(requests), 0)), np.empty((len(requests), 0))
        found = self.features.rows(requests) if rows is None else rows
        return self.features.points(found), found[:, self.features.effect_columns]

    def _unknown(self, drafts: int | None) -> AcceptancePrior:
        weights = np.array([run.rows for run in self.runs], dtype=np.float64)
        mean = exp(float(np.average([run.center for run in self.runs], weights=weights)))
        if drafts is not None:
            mean = min(mean, drafts + 1.0)
        settings = PosteriorSettings()
        return AcceptancePrior(mean, UNKNOWN_STRENGTH, settings, drafts, mean, UNKNOWN_STRENGTH)

    def to_state(self, with_features: bool = True) -> State:
        """Return the learned state; without the features where the bundle holds them already."""
        meta: dict[str, Any] = {"runs": [run_meta(run) for run in self.runs]}
        arrays: dict[str, NDArray[Any]] = {}
        texts: dict[str, str] = {}
        for i, run in enumerate(self.runs):
            arrays |= run_arrays(run, i)
        if self.features is not None and with_features:
            state = nested_state(self.features)
            meta.update(state.meta)
            arrays.update(state.arrays)
            texts.update(state.texts)
        return State(self.kind, meta, arrays, texts)

    @classmethod
    def from_state(cls, state: State, features: FeatureSet | None = None) -> Self:
        """Rebuild a fitted model; ``features`` are those that the state was written without."""
        features = nested_features(state) or features
        width, functions = 0, 0
        if features is not None:
            width = features.points(features.rows([PromptRequest(prompt="")])).shape[1]
            functions = len(features.effect_columns)
        return cls(
            features, [run_of(meta, state.arrays, i, width, functions) for i, meta in enumerate(state.meta["runs"])]
        )


def _same(a: str | None, b: str | None) -> bool:
    return a is not None and b is not None and a.casefold() == b.casefold()
