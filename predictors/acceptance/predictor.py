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

from laps_sd.data import PromptRequest
from laps_sd.predictors.acceptance.run import AcceptancePrior, AcceptanceRun, prior_at, run_meta, run_of
from laps_sd.predictors.buckets import Floats
from laps_sd.predictors.features.matrix import FeatureMap
from laps_sd.predictors.state import State
from laps_sd.scheduler.posterior.factory import PosteriorSettings

__all__ = ["AcceptancePrior", "AcceptanceRun", "KernelSpace", "PromptAcceptance"]

#: Weight (verify steps) of the average over known drafts as the prior of an unknown one: little.
UNKNOWN_STRENGTH = 4.0
#: Weights of a surface feature (in standard deviations) and of a latent word dimension in the kernel's distances.
_SURFACE_WEIGHT, _WORD_WEIGHT = 0.08, 1.3
_DIMENSIONS = 30
_CLIP = 3.0
#: Counts of word classes tell lengths; for acceptance they only blur the distances.
_NOT_READ = ("words_", "opening_", "closing_", "first_class", "model_score", "log_cap", "temperature", "log_turns")


class PromptAcceptance:
    """Prior means and strengths from prompts, for every run seen in training.

    Parameters
    ----------
    features : FeatureMap, optional
        Fitted features of the prompt; None when no run reads the prompt.
    runs : sequence of AcceptanceRun
        At least one, the largest first.
    """

    kind = "prompt"

    def __init__(self, features: FeatureMap | None, runs: Sequence[AcceptanceRun]) -> None:
        if not runs:
            raise ValueError("an acceptance model needs at least one run")
        if features is None and any(run.kernel is not None for run in runs):
            raise ValueError("a run reads the prompt, but there are no features")
        self.features = features
        self.runs = tuple(runs)
        self._reads_prompt = any(run.kernel is not None for run in self.runs)
        self._points = None if features is None else KernelSpace(features)

    def predict_prior(
        self,
        requests: Sequence[PromptRequest],
        *,
        draft: str | None = None,
        max_correct_drafts: int | None = None,
        rows: Floats | None = None,
    ) -> tuple[Floats, Floats]:
        """Return prior means (tokens per step) and strengths (steps), each of shape (n,).

        Parameters
        ----------
        requests, draft, max_correct_drafts
            As in ``PredictorBundle.predict``. An unknown draft gets the average over the known ones and little
            strength; another draft length than in training is converted by the truncated geometric law.
        rows : array, shape (n, columns), optional
            ``features.rows(requests)`` when the caller has them already.
        """
        priors = self.priors(requests, draft=draft, max_correct_drafts=max_correct_drafts, rows=rows)
        return np.array([p.mean for p in priors]), np.array([p.strength for p in priors])

    def priors(
        self,
        requests: Sequence[PromptRequest],
        *,
        draft: str | None = None,
        max_correct_drafts: int | None = None,
        rows: Floats | None = None,
    ) -> list[AcceptancePrior]:
        """Return what :meth:`predict_prior` returns, with everything that belongs to it."""
        found: list[AcceptancePrior | None] = [None] * len(requests)
        places: dict[str | None, list[int]] = {}
        for i, request in enumerate(requests):
            places.setdefault(request.model, []).append(i)
        space = self._space(requests, rows)
        for model, chosen in places.items():
            run = self.find_run(model, draft, max_correct_drafts)
            if run is None:
                unknown = self._unknown(max_correct_drafts)
                for i in chosen:
                    found[i] = unknown
                continue
            means = run.means(np.empty((len(chosen), 0)) if space is None else space[chosen])
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

    def _space(self, requests: Sequence[PromptRequest], rows: Floats | None) -> Floats | None:
        if self.features is None or self._points is None or not len(requests) or not self._reads_prompt:
            return None
        return self._points.of(self.features.rows(requests) if rows is None else rows)

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
            if run.kernel is not None:
                arrays[f"{i}/landmarks"] = run.kernel.landmarks
                arrays[f"{i}/weights"] = run.kernel.weights
        if self.features is not None and with_features:
            state = self.features.to_state()
            meta["features"] = state.meta
            arrays.update({f"features/{name}": array for name, array in state.arrays.items()})
            texts.update(state.texts)
        return State(self.kind, meta, arrays, texts)

    @classmethod
    def from_state(cls, state: State, features: FeatureMap | None = None) -> Self:
        """Rebuild a fitted model; ``features`` are those that the state was written without."""
        if "features" in state.meta:
            inner = {n.removeprefix("features/"): a for n, a in state.arrays.items() if n.startswith("features/")}
            features = FeatureMap.from_state(State("features", state.meta["features"], inner, state.texts))
        return cls(features, [run_of(meta, state.arrays, i) for i, meta in enumerate(state.meta["runs"])])


class KernelSpace:
    """What the kernel measures distances in: scaled surface features beside latent word dimensions."""

    def __init__(self, features: FeatureMap) -> None:
        names = features.names[: features.word_column]
        self._surface = np.array([i for i, name in enumerate(names) if not name.startswith(_NOT_READ)])
        self._center = features.center[self._surface]
        self._scale = _SURFACE_WEIGHT / features.scale[self._surface]
        first = features.word_column + 1
        self._latent = slice(first, min(first + _DIMENSIONS, len(features.names) - 1))

    def of(self, rows: Floats) -> Floats:
        """Return points, shape (n, d), of feature rows, shape (n, columns)."""
        scaled = (rows[:, self._surface] - self._center) * self._scale
        np.clip(scaled, -_CLIP * _SURFACE_WEIGHT, _CLIP * _SURFACE_WEIGHT, out=scaled)
        return np.concatenate([scaled, _WORD_WEIGHT * rows[:, self._latent]], axis=1)


def _same(a: str | None, b: str | None) -> bool:
    return a is not None and b is not None and a.casefold() == b.casefold()
