"""Fitting the acceptance predictor: a scikit-learn regressor from prompts to tokens per verify step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from laps_sd.data import PromptRequest, RequestRecord, group_names
from laps_sd.errors import InputError
from laps_sd.predictors.acceptance.base import AcceptanceModel
from laps_sd.predictors.acceptance.effects import Effects, fit_effects, pulled_in
from laps_sd.predictors.acceptance.observed import (
    RunKey,
    has_acceptance,
    run_keys,
    step_tokens,
    verify_steps_of,
)
from laps_sd.predictors.acceptance.predictor import PromptAcceptance
from laps_sd.predictors.acceptance.run import AcceptanceRun
from laps_sd.predictors.acceptance.run_mean import RunMeanAcceptance
from laps_sd.predictors.acceptance.strength import fit_strength
from laps_sd.predictors.arrays import Floats, Ints
from laps_sd.predictors.features.base import FeatureSet
from laps_sd.predictors.features.fit import PromptFeatures
from laps_sd.predictors.features.kernel import KernelRidge
from laps_sd.predictors.features.kernel_fit import fit_kernel
from laps_sd.predictors.rows import as_requests, grouped_folds

#: A run with fewer requests keeps its mean: its prompts cannot be told from noise.
LEAST_ROWS = 40
_GAMMA, _PENALTY = 1.0, 0.5
_HALF_WEIGHT_STEPS = 16.0
_OUTLIER = 2.5  # median absolute deviations
#: Effects are kept when they leave at most this share of the error on held-out requests.
_CLEARLY = 0.97
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


class AcceptanceEstimator(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """Tokens per verify step by kernel ridge regression on the prompt, one model per run.

    Parameters
    ----------
    features : FeatureSet, optional
        Fitted prompt features, for instance those of the length model; fitted here when None.
    landmarks : int
        Most training prompts that the kernel remembers.
    folds : int
        Inner folds by which the weight of prompts and the strength of priors are chosen.
    seed : int
        Seed of everything random.

    Attributes
    ----------
    model_ : PromptAcceptance
    """

    def __init__(self, features: FeatureSet | None = None, landmarks: int = 512, folds: int = 5, seed: int = 0) -> None:
        self.features = features
        self.landmarks = landmarks
        self.folds = folds
        self.seed = seed

    def fit(
        self,
        X: Sequence[PromptRequest | str],
        y: NDArray[Any] | Sequence[float],
        *,
        runs: Sequence[RunKey] | None = None,
        steps: Sequence[NDArray[Any]] | None = None,
        counts: Sequence[int] | None = None,
        ordered: bool = True,
        groups: NDArray[Any] | None = None,
    ) -> Self:
        """Learn from prompts ``X`` and tokens per verify step ``y`` (at least 1).

        Parameters
        ----------
        X : sequence of PromptRequest or str, length n
        y : array, shape (n,)
        runs : sequence of RunKey, optional
            The run of each request; one run when None.
        steps : sequence of arrays, optional
            Tokens of each verify step of each request; without them priors get a default strength.
        counts : sequence of int, optional
            Verify steps of each request, where ``steps`` do not show them.
        ordered : bool
            Whether ``steps`` are in the order in which they happened.
        groups : array, shape (n,), optional
            Related prompts; never split by inner folds.

        Raises
        ------
        InputError
            No rows, unequal lengths, or a target that is not a finite number of at least 1.
        """
        requests, tokens = _checked(X, y)
        keys = [RunKey(None, None, None)] * len(requests) if runs is None else list(runs)
        sequences = [np.empty(0)] * len(requests) if steps is None else list(steps)
        shown = np.array([len(s) for s in sequences] if counts is None else counts, dtype=np.float64)
        places: dict[RunKey, list[int]] = {}
        for i, key in enumerate(keys):
            places.setdefault(key, []).append(i)
        features, read = self._read(requests, tokens, max(map(len, places.values())))
        fitted = [
            self._fit_run(
                key,
                None if read is None else (read[0][rows], read[1][rows]),
                tokens[rows],
                [sequences[i] for i in rows],
                shown[rows],
                ordered,
                None if groups is None else np.asarray(groups)[rows],
            )
            for key, rows in places.items()
        ]
        self.model_ = PromptAcceptance(features, sorted(fitted, key=lambda run: -run.rows))
        return self

    def predict(self, X: Sequence[PromptRequest | str]) -> Floats:
        """Return tokens per verify step, shape (n,), on the run with the most requests of each request's model."""
        check_is_fitted(self)
        return self.model_.predict_prior(as_requests(X))[0]

    def _read(
        self, requests: list[PromptRequest], tokens: Floats, largest_run: int
    ) -> tuple[FeatureSet | None, tuple[Floats, Floats] | None]:
        """Return the features, and the points and numbers of the requests; None where no run is large enough."""
        if largest_run < LEAST_ROWS:
            return None, None
        features = self.features or PromptFeatures(seed=self.seed).fit(requests, tokens).map_
        rows = features.rows(requests)
        return features, (features.points(rows), rows[:, features.effect_columns])

    def _fit_run(
        self,
        key: RunKey,
        read: tuple[Floats, Floats] | None,
        tokens: Floats,
        steps: list[NDArray[Any]],
        counts: Floats,
        ordered: bool,
        groups: NDArray[Any] | None,
    ) -> AcceptanceRun:
        logs, weight = np.log(tokens), _weights(counts)
        parts = grouped_folds(groups, len(logs), self.folds, self.seed)
        found = self._fit_prompt(read, logs, weight, parts)
        center, held_out = found.center, found.held_out
        most = np.inf if key.drafts is None else np.log(key.drafts + 1.0)
        seeded = np.exp(np.clip(held_out, 0.0, most))
        strength, settings = fit_strength(seeded, steps, key.drafts, ordered=ordered)
        unseeded = np.full(len(logs), np.exp(center))
        unseeded_strength, _ = fit_strength(unseeded, steps, key.drafts, ordered=ordered)
        constants = (strength, unseeded_strength, settings)
        return AcceptanceRun(*key, len(logs), center, found.kernel, *constants, effects=found.effects)

    def _fit_prompt(
        self, read: tuple[Floats, Floats] | None, logs: Floats, weight: Floats, parts: Sequence[Ints]
    ) -> _Fitted:
        """Fit what the prompt says; the effects of single numbers only where they clearly help held-out requests."""
        calm = pulled_in(logs, _OUTLIER)
        center = float(np.average(calm, weights=weight))
        if read is None or len(logs) < LEAST_ROWS:
            return _Fitted(center, None, None, np.full(len(logs), center))
        points, numbers = read
        kernel, held_out = _fit_deviation(points, calm - center, weight, parts, self.landmarks, self.seed)
        without = _Fitted(center, kernel, None, held_out + center)
        if not np.ptp(numbers, axis=0).any():
            return without
        # What is far from the run's mean may be what these numbers do: outliers are told by what they leave over.
        center = float(np.average(logs, weights=weight))
        effects, raised = fit_effects(numbers, logs - center, weight, parts, _OUTLIER)
        rest = pulled_in(logs - center - raised, _OUTLIER)
        left = float(np.average(rest, weights=weight))
        center, rest = center + left, rest - left
        kernel, held_out = _fit_deviation(points, rest, weight, parts, self.landmarks, self.seed)
        found = _Fitted(center, kernel, effects, held_out + raised + center)
        return found if found.error(logs, weight) < _CLEARLY * without.error(logs, weight) else without


class _Fitted(NamedTuple):
    """What a run's prompts say, and what it says of each request from the other folds (log tokens per step)."""

    center: float
    kernel: KernelRidge | None
    effects: Effects | None
    held_out: Floats

    def error(self, logs: Floats, weight: Floats) -> float:
        """Return the weighted mean absolute error on held-out requests."""
        return float(weight @ np.abs(self.held_out - logs)) / float(weight.sum())


def fit_acceptance(
    records: Sequence[RequestRecord],
    features: FeatureSet | None = None,
    seed: int = 0,
    groups: Sequence[str] | None = None,
) -> AcceptanceModel:
    """Fit the acceptance predictor on the finished requests that carry acceptance data.

    Parameters
    ----------
    records : sequence of RequestRecord
        With prompt text.
    features : FeatureSet, optional
        Fitted prompt features to share.
    seed : int
        Seed of everything random.
    groups : sequence of str, optional
        ``group_names`` of the records, where the caller knows: telling near-duplicates takes a while.

    Returns
    -------
    PromptAcceptance, or RunMeanAcceptance when no record carries acceptance data
    """
    kept = [i for i, r in enumerate(records) if has_acceptance(r)]
    if not kept:
        return RunMeanAcceptance()
    rows = [records[i] for i in kept]
    ordered = any(r.accept_lengths is not None for r in rows)
    random = None if ordered else np.random.default_rng(seed)
    estimator = AcceptanceEstimator(features, seed=seed)
    estimator.fit(
        [PromptRequest.from_record(r) for r in rows],
        [r.accept_length or 1.0 for r in rows],
        runs=run_keys(rows),
        steps=[step_tokens(r, random) for r in rows],
        counts=[verify_steps_of(r) for r in rows],
        ordered=ordered,
        groups=np.array(group_names(rows) if groups is None else [groups[i] for i in kept]),
    )
    return estimator.model_


def _fit_deviation(
    points: Floats, target: Floats, weight: Floats, folds: Sequence[Ints], landmarks: int, seed: int
) -> tuple[KernelRidge | None, Floats]:
    """Fit the deviation from the run's mean, scaled down to the share that serves held-out requests best.

    A share of 0 means that the prompt did not help: the kernel is dropped, and nothing is worse than the mean.
    """
    kernel, held_out = fit_kernel(
        points, target, folds, gamma=_GAMMA, penalty=_PENALTY, most_landmarks=landmarks, seed=seed, weight=weight
    )
    errors = [float(weight @ np.abs(share * held_out - target)) for share in _SHARES]
    share = _SHARES[int(np.argmin(errors))]
    if share == 0.0:
        return None, np.zeros(len(target))
    scaled = KernelRidge(kernel.landmarks, share * kernel.weights, share * kernel.mean, kernel.gamma)
    return scaled, share * held_out


def _weights(counts: Floats) -> Floats:
    """Weight of each request: the mean of a few steps says little about a request's acceptance."""
    return counts / (counts + _HALF_WEIGHT_STEPS) if counts.any() else np.ones(len(counts))


def _checked(X: Sequence[PromptRequest | str], y: NDArray[Any] | Sequence[float]) -> tuple[list[PromptRequest], Floats]:
    requests, tokens = as_requests(X), np.asarray(y, dtype=np.float64)
    if len(requests) != len(tokens):
        raise InputError(f"{len(requests)} prompts but {len(tokens)} accept lengths; give one per prompt")
    if not requests:
        raise InputError("no request carries acceptance data; collect from a server that speculates")
    if not np.isfinite(tokens).all() or (tokens < 1.0).any():
        raise InputError("an accept length is missing or below 1 token per verify step; remove or repair those rows")
    return requests, tokens
