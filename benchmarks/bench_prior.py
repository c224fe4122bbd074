"""Whether other people's requests help a user who has few of their own.

``python benchmarks/bench_prior.py OWN --general TRACE…`` takes 100, 300, 1,000 and 3,000 requests of the trace OWN and
predicts the lengths of up to 1,000 others of it (no prompt, and none like it, on both sides) in four ways: trained on
the own requests alone; on the general ones alone (those given and the built-in trace, less prompts like OWN's); on both
together; and stacked, where the survival curves of the first two are mixed with the weight that cross-validation on the
own requests likes best. Differences from the own requests alone are over seeds, with 95 % intervals.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, stdev

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.stats import t as student

from laps_sd.data import PromptRequest, RequestRecord, group_folds, group_names, read_records
from laps_sd.data.builtin import builtin_trace
from laps_sd.predictors import PredictorBundle, fit_bundle
from laps_sd.predictors.arrays import Floats
from laps_sd.training.evaluation.length import lengths_of
from laps_sd.training.evaluation.metrics import length_metrics

SIZES = (100, 300, 1000, 3000)
MOST_HELD_OUT = 1000
WEIGHTS = np.linspace(0.0, 1.0, 11)
FOLDS = 3
WAYS = ("own", "general", "together", "stacked")

Curves = Callable[[Sequence[RequestRecord]], Floats]


def main() -> None:
    """Read the traces, fit, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("own", type=Path)
    parser.add_argument("--general", type=Path, nargs="*", default=[])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    own = [r for r in read_records(options.own) if r.prompt is not None]
    others = [*builtin_trace(), *(r for path in options.general for r in read_records(path) if r.prompt is not None)]
    names = group_names([*own, *others])
    taken = set(names[: len(own)])
    general = [r for r, name in zip(others, names[len(own) :], strict=True) if name not in taken]
    bundle = fitted(general, 0)
    table = Table(title=f"{options.own.stem}: {len(general)} general requests, {options.seeds} seeds")
    for header in ("own requests", "way", "Kendall τ", "τ − own alone", "integrated Brier", "Brier − own alone"):
        table.add_column(header)
    for size in options.sizes:
        found = [compare(own, names[: len(own)], general, bundle, size, seed) for seed in range(options.seeds)]
        if None in found:
            table.add_row(f"{size:,}", "too few here")
            continue
        for way in WAYS:
            rows = [(one[way], one["own"]) for one in found if one is not None]
            cells = [text for k in (0, 1) for text in (f"{mean(r[k] for r, _ in rows):.3f}", differs(rows, k))]
            table.add_row(f"{size:,}", way, *cells)
    Console(width=120).print(table)


def differs(rows: Sequence[tuple[tuple[float, float], tuple[float, float]]], k: int) -> str:
    """Return the mean difference from the own requests alone and its 95 % interval."""
    values = [way[k] - own[k] for way, own in rows]
    if not any(values):
        return ""
    half = student.ppf(0.975, len(values) - 1) * stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{mean(values):+.3f} ± {half:.3f}"


def compare(
    own: Sequence[RequestRecord],
    names: Sequence[str],
    general: Sequence[RequestRecord],
    prior: PredictorBundle,
    size: int,
    seed: int,
) -> dict[str, tuple[float, float]] | None:
    """Return Kendall τ and the integrated Brier score of each way; None where the trace is too small."""
    rng = np.random.default_rng(seed)
    groups: dict[str, list[RequestRecord]] = {}
    for record, name in zip(own, names, strict=True):
        groups.setdefault(name, []).append(record)
    shuffled = [groups[name] for name in rng.permutation(sorted(groups))]
    train: list[RequestRecord] = []
    while shuffled and len(train) < size:
        train += shuffled.pop()
    test = [record for group in shuffled for record in group][:MOST_HELD_OUT]
    if len(train) < size or len(test) < MOST_HELD_OUT / 10:
        return None
    alone, known = fitted(train, seed), survival_of(prior)
    curves: dict[str, Floats] = {
        "own": survival_of(alone)(test),
        "general": known(test),
        "together": survival_of(fitted([*train, *general], seed))(test),
    }
    weight = best_weight(train, known, seed)
    curves["stacked"] = weight * curves["own"] + (1.0 - weight) * curves["general"]
    return {way: judged(test, curves[way]) for way in WAYS}


GRID = np.unique(np.round(np.concatenate([[0], np.geomspace(1, 8192, 63)])).astype(np.int64))


def fitted(records: Sequence[RequestRecord], seed: int) -> PredictorBundle:
    """Train as `laps-sd train` does; acceptance is not looked at."""
    return fit_bundle(records, acceptance="run_mean", seed=seed, refine=False)


def survival_of(bundle: PredictorBundle) -> Curves:
    """Return what gives P(length > edge) on `GRID`, shape (requests, edges)."""

    def curves(records: Sequence[RequestRecord]) -> Floats:
        predictions = bundle.predict([PromptRequest.from_record(r) for r in records])
        return np.array([[p.length.survive(float(edge)) for edge in GRID] for p in predictions])

    return curves


def best_weight(train: Sequence[RequestRecord], known: Curves, seed: int) -> float:
    """Return the weight of the own model that is best on requests which it has not seen."""
    own, general = np.empty((len(train), len(GRID))), known(train)
    for test in group_folds(train, FOLDS, seed):
        rest = np.setdiff1d(np.arange(len(train)), test)
        own[test] = survival_of(fitted([train[i] for i in rest], seed))([train[i] for i in test])
    return min(WEIGHTS.tolist(), key=lambda w: judged(train, w * own + (1.0 - w) * general)[1])


def judged(records: Sequence[RequestRecord], survival: Floats) -> tuple[float, float]:
    """Return Kendall τ and the integrated Brier score."""
    tokens, censored = lengths_of(records)
    found = length_metrics(tokens, censored, survival, GRID)
    return found["kendall_tau"], found["integrated_brier"]


if __name__ == "__main__":
    main()
