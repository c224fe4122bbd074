"""Predictions of a stated quality, and corrupted ones: how a policy copes with them is a question to measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from laps_sd.scheduler.prediction import Prediction
from laps_sd.scheduler.refinement import Refinement
from laps_sd.scheduler.simulator.workload import ReplayRequest
from laps_sd.scheduler.survival import MAX_EDGES, SurvivalCurve

#: Weight, in verify steps, of a prior that knows only the mean of the workload.
_WEAK_PRIOR_STEPS = 16.0
#: Correlation of the error of a refined length with the error before it.
_KEPT_ERROR = 0.8
#: Standard deviation of the log length after so many tokens, as measured (docs/refinement.md).
MEASURED_QUALITY: dict[int, float] = {32: 0.59, 64: 0.49, 128: 0.40, 256: 0.32, 512: 0.31}


def noisy_predictions(requests: Sequence[ReplayRequest], sigma: float, rng: np.random.Generator) -> list[Prediction]:
    """Clairvoyant lengths times lognormal noise, each with the curve that is right for such a predictor.

    The median is the true length times exp(``sigma`` · z) with z standard normal, and the curve around it is
    lognormal with the same ``sigma``: the predictor is noisy, but knows how noisy it is. 0 is almost clairvoyant.
    Acceptance is not predicted: its prior is the workload's mean, held as weakly as one of 16 steps.
    """
    if sigma < 0:
        raise ValueError(f"the noise of predictions must not be negative, got {sigma}")
    steps = sum(r.steps for r in requests)
    accept = sum(r.output_tokens - r.first_tokens for r in requests) / steps if steps else 1.0
    noise = np.exp(sigma * rng.standard_normal(len(requests)))
    return [
        Prediction(SurvivalCurve.lognormal(r.output_tokens * float(z), sigma), accept, _WEAK_PRIOR_STEPS)
        for r, z in zip(requests, noise, strict=True)
    ]


def noisy_refinements(
    requests: Sequence[ReplayRequest], quality: Mapping[int, float], rng: np.random.Generator
) -> list[tuple[Refinement, ...]]:
    """Refined lengths of a stated quality for requests with predictions.

    After so many tokens the length is believed log-normal around the true one times exp(``sigma`` · z). What is wrong
    with a prediction is found out little by little: z keeps 0.8 of the error before, in units of its spread, and gets
    as much that is new as leaves its variance 1.

    Parameters
    ----------
    quality : mapping of int to float
        By tokens read, the standard deviation of the log length.

    Raises
    ------
    ValueError
        A request has no prediction, or a standard deviation is negative.
    """
    known = [r.prediction.length.quantile(0.5) for r in requests if r.prediction is not None]
    if len(known) < len(requests):
        raise ValueError("lengths can be refined where every request has a prediction; give --predictions")
    if any(sigma < 0 for sigma in quality.values()):
        raise ValueError("the noise of refinements must not be negative")
    errors = np.log(np.maximum(known, 1.0)) - np.log([r.output_tokens for r in requests])
    z = errors / max(float(np.sqrt(np.mean(errors**2))), 1e-9)
    found: list[list[Refinement]] = [[] for _ in requests]
    for at, sigma in sorted(quality.items()):
        z = _KEPT_ERROR * z + (1.0 - _KEPT_ERROR**2) ** 0.5 * rng.standard_normal(len(requests))
        for own, request, error in zip(found, requests, z, strict=True):
            if request.output_tokens > at:
                median = request.output_tokens * float(np.exp(sigma * error))
                own.append(Refinement(at, SurvivalCurve.lognormal(max(median, 1.0), sigma)))
    return [tuple(own) for own in found]


def shuffled(predictions: Sequence[Prediction], rng: np.random.Generator) -> list[Prediction]:
    """Hand the predictions round at random: each is plausible, none is about its request."""
    return [predictions[i] for i in rng.permutation(len(predictions))]


def reversed_order(predictions: Sequence[Prediction]) -> list[Prediction]:
    """Give the request predicted shortest the longest prediction, and so on: the worst adviser with these curves."""
    order = np.argsort([p.length.mean() for p in predictions], kind="stable")
    out = list(predictions)
    for mine, theirs in zip(order, order[::-1], strict=True):
        out[mine] = predictions[theirs]
    return out


def with_predictions(
    requests: Sequence[ReplayRequest], predictions: Sequence[Prediction | None]
) -> list[ReplayRequest]:
    """Give the requests, in their order, the predictions."""
    return [replace(r, prediction=p) for r, p in zip(requests, predictions, strict=True)]


def unseeded_acceptance(predictions: Sequence[Prediction]) -> list[Prediction]:
    """Keep the lengths; replace every acceptance prior by the mean of all: what a prompt tells is ablated."""
    mean = float(np.mean([p.accept_length for p in predictions]))
    strength = min(p.accept_strength for p in predictions)
    return [replace(p, accept_length=mean, accept_strength=strength) for p in predictions]


def unseeded_length(predictions: Sequence[Prediction]) -> list[Prediction]:
    """Keep the acceptance priors; replace every length by the average curve of all."""
    edges = np.unique(np.concatenate([p.length.edges for p in predictions]))
    if len(edges) > MAX_EDGES:
        edges = edges[np.unique(np.linspace(0, len(edges) - 1, MAX_EDGES).round().astype(int))]
    mean = np.mean([[p.length.survive(int(t)) for t in edges] for p in predictions], axis=0)
    curve = SurvivalCurve(edges, mean)
    return [replace(p, length=curve) for p in predictions]
