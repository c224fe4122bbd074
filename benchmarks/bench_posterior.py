"""What the acceptance posterior costs, and how it does on a trace: the table of docs/acceptance.md.

    python benchmarks/bench_posterior.py                      microseconds per call
    python benchmarks/bench_posterior.py TRACE [TRACE …]      errors and coverage, grouped out-of-fold, as Markdown

A trace holds request records with prompt text and accept lengths (Parquet or JSON lines, one run each).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from timeit import timeit
from typing import Any

import numpy as np

from laps_sd.data import RequestRecord, read_records
from laps_sd.predictors.acceptance.base import AcceptancePrior
from laps_sd.predictors.acceptance.observed import has_acceptance, step_tokens
from laps_sd.predictors.acceptance.strength import LEAST_REST
from laps_sd.scheduler.posterior.factory import make_posterior
from laps_sd.scheduler.posterior.settings import PosteriorSettings
from laps_sd.training.evaluation.acceptance import cross_validated_priors, evaluate_acceptance, feed, start

CALLS = {
    "make": "make_posterior(2.5, 24.0, settings, 5)",
    "update": "posterior.update(3, 5)",
    "mean": "posterior.mean()",
    "steps_per_token": "posterior.steps_per_token()",
    "stable": "posterior.stable(0.35)",
    "predictive_interval": "posterior.predictive_interval(0.8, 40)",
    "copy": "posterior.copy()",
}
STEPS = ("0", "4", "8", "16", "32")
AFTER_CHANGE = ("16", "32", "64")
BEFORE_CHANGE = 32  # verify steps of the first request, before the second takes its place


def costs(repeats: int = 2000) -> None:
    """Print microseconds per call of each model, after 100 steps."""
    print("| call, µs | shrunken | beta | dirichlet |\n|---|---|---|---|")
    for name, call in CALLS.items():
        cells = []
        for kind in ("shrunken", "beta", "dirichlet"):
            settings = PosteriorSettings(kind=kind)
            posterior = make_posterior(2.5, 24.0, settings, 5)
            for step in range(100):
                posterior.update(7 * step % 6, 5)
            scope = {"make_posterior": make_posterior, "settings": settings, "posterior": posterior}
            best = min(timeit(call, globals=scope, number=repeats // 5) for _ in range(5))
            cells.append(f"{best / (repeats // 5) * 1e6:.2f}")
        print(f"| `{name}` | {' | '.join(cells)} |")


def accuracy(paths: Sequence[str]) -> None:
    """Print errors and coverage of each trace, for the fitted posterior and for the plain Beta beside it."""
    print(
        "| run | requests | τ at arrival | κ | discount, dispersion, drift | error % of the rest after 0/4/8/16/32:"
        " prompt prior | run's mean | running mean | 80 % interval covers % after 8/16/32 | plain Beta |"
        " spliced from two requests: covers % 16/32/64 steps after the change | … if told of the change | splices |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    )
    for path in paths:
        records = [r for r in read_records(path) if r.prompt is not None and has_acceptance(r)]
        priors = cross_validated_priors(records)
        figures = evaluate_acceptance(records, priors)
        plain = evaluate_acceptance(records, [plain_beta(p) for p in priors])
        if figures is None or plain is None:
            continue
        first = priors[0]
        constants = first.settings
        tau = figures["kendall_tau"]
        cells = [
            Path(path).name.split(".")[0],
            str(figures["n"]),
            "–" if tau is None else f"{tau:.2f}",
            f"{first.strength:.0f}",
            f"{constants.discount:g}, {constants.dispersion:.2f}, {constants.drift:.2f}",
            *(percent(figures[f"mape_accept_length{end}"], STEPS) for end in ("", "_unseeded", "_raw")),
            *(percent(each["coverage_80"], STEPS[2:], 0) for each in (figures, plain)),
            *spliced(records, priors),
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


def spliced(records: Sequence[RequestRecord], priors: Sequence[AcceptancePrior]) -> list[str]:
    """Return three cells: how often the 80 % interval holds the rest of a request that becomes another one, and counts.

    The first 32 verify steps of one request are followed by all steps of another one, drawn with a seed; belief begins
    with the prior of the first. The rest is what comes after the steps seen, to the end of the second request; what is
    to be held is its mean tokens per step. Beside it stands an observer who is told of the change: a new belief, which
    begins there with the run's mean. Nobody who has to find out can do better.
    """
    order = np.random.default_rng(0).permutation(len(records)).tolist()
    inside: dict[str, list[bool]] = {after: [] for after in AFTER_CHANGE}
    told: dict[str, list[bool]] = {after: [] for after in AFTER_CHANGE}
    for i, j in zip(order, order[1:] + order[:1], strict=True):
        first, second = (step_tokens(records[i]), step_tokens(records[j]))
        if len(first) < BEFORE_CHANGE:
            continue
        tokens = np.concatenate([first[:BEFORE_CHANGE], second])
        prior = priors[i]
        proposed = np.maximum(np.full(len(tokens), prior.drafts or 0), tokens - 1)
        posterior, done = start(prior), 0
        anew = make_posterior(prior.unseeded_mean, prior.unseeded_strength, prior.settings, prior.drafts)
        for after in AFTER_CHANGE:
            seen = BEFORE_CHANGE + int(after)
            if len(tokens) < seen + LEAST_REST:
                break
            feed(posterior, tokens, proposed, done, seen)
            feed(anew, tokens, proposed, max(done, BEFORE_CHANGE), seen)
            done = seen
            for belief, hits in ((posterior, inside), (anew, told)):
                low, high = belief.predictive_interval(0.8, len(tokens) - seen)
                hits[after].append(bool(low <= tokens[seen:].mean() <= high))
    shares = [{after: float(np.mean(hits)) if hits else None for after, hits in f.items()} for f in (inside, told)]
    counts = " / ".join(str(len(hits)) for hits in inside.values())
    return [*(percent(each, AFTER_CHANGE, 0) for each in shares), counts]


def plain_beta(prior: AcceptancePrior) -> AcceptancePrior:
    """Return the same prior with the conjugate Beta, neither tempered nor discounted nor drifting."""
    settings = PosteriorSettings(kind="beta", discount=1.0, temper=1.0, drift=0.0)
    return replace(prior, settings=settings)


def percent(values: dict[str, Any], steps: Sequence[str], digits: int = 1) -> str:
    """Return shares as percentages, "–" where there is none."""
    return " / ".join("–" if values[s] is None else f"{100 * values[s]:.{digits}f}" for s in steps)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        accuracy(sys.argv[1:])
    else:
        costs()
