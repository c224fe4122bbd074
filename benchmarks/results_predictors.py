"""Regenerate docs/results-predictors.md: how exact the predictions are on public runs, all of it out-of-fold.

    python benchmarks/results_predictors.py DIR [--out FILE]

DIR holds traces of request records (none of them is part of this repository): the lengths ``sharegpt_pypi.jsonl`` and
``alpaca_eval_llama3_8b.jsonl``, and runs with verify steps ``sdb_ngram.jsonl``, ``sdb_eagle.jsonl`` (chains of 5),
``specbench_eagle_yk.jsonl``, ``specbench_sps_bn.jsonl`` and ``specbench_ssd_vicuna_a.jsonl``. ``evaluations/`` beside
them keeps what an earlier run computed, so that one that was interrupted goes on where it stopped: delete it when the
code has changed. Every figure is one that ``laps-sd evaluate`` prints.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from laps_sd.data import read_records
from laps_sd.files import write_text
from laps_sd.predictors import fit_bundle
from laps_sd.training import evaluate

DOCUMENT = Path(__file__).parent.parent / "docs" / "results-predictors.md"
CHAT = ("sharegpt_pypi", "alpaca_eval_llama3_8b")
RUNS = ("sdb_ngram", "sdb_eagle", "specbench_eagle_yk", "specbench_sps_bn", "specbench_ssd_vicuna_a")
#: Trace, features, predictor.
LENGTHS = (
    ("sharegpt_pypi", "lexical", "hazard"),
    ("sharegpt_pypi", "embedding", "hazard"),
    ("alpaca_eval_llama3_8b", "lexical", "hazard"),
    ("alpaca_eval_llama3_8b", "embedding", "hazard"),
    ("alpaca_eval_llama3_8b", "lexical", "transformer"),
    ("sdb_eagle", "lexical", "hazard"),
)
STEPS = ("0", "4", "8", "16", "32")
SEEN = ("0", "8", "16", "32")
Figures = dict[str, Any]


def kept(folder: Path, name: str, compute: Callable[[], Figures]) -> Figures:
    """Compute, unless an earlier run did."""
    file = folder / "evaluations" / f"{name}.json"
    if not file.exists():
        print(name, file=sys.stderr, flush=True)
        write_text(file, json.dumps(compute()))
    figures: Figures = json.loads(file.read_text(encoding="utf-8"))
    return figures


def out_of_fold(folder: Path, trace: str, features: str = "lexical", predictor: str = "hazard") -> Figures:
    """``laps-sd evaluate --cv 5``."""
    options = {"cv": 5, "features": features, "predictor": predictor, "log": False}
    return kept(
        folder, f"{trace}.{features}.{predictor}", lambda: evaluate(None, [folder / f"{trace}.jsonl"], **options)
    )


def foreign(folder: Path, features: str) -> Figures:
    """``laps-sd train`` on the chat traces, ``laps-sd evaluate --bundle`` on sdb_eagle."""

    def compute() -> Figures:
        records = [r for name in CHAT for r in read_records(folder / f"{name}.jsonl")]
        return evaluate(fit_bundle(records, features=features), [folder / "sdb_eagle.jsonl"], log=False)

    return kept(folder, f"foreign.{features}", compute)


def length_row(name: str, how: str, figures: Figures) -> str:
    length = figures["length"]
    low, high = length["ci_95"]["kendall_tau"]
    best = max((b["length"]["kendall_tau"], n.replace("_", " ")) for n, b in figures["baselines"].items() if b)
    return (
        f"| {name} | {figures['n']:,} | {how} | {length['kendall_tau']:.3f} ({low:.3f} to {high:.3f}) | "
        f"{length['median_relative_error']:.1%} | {length['coverage_80']:.1%} | {best[0]:.2f} {best[1]} |"
    )


def lengths(folder: Path) -> list[str]:
    rows = [
        length_row(trace, features if predictor == "hazard" else f"{predictor} (MiniLM, fine-tuned)", found)
        for trace, features, predictor in LENGTHS
        for found in [out_of_fold(folder, trace, features, predictor)]
    ]
    shifted = {features: foreign(folder, features) for features in ("lexical", "embedding")}
    rows += [length_row("sdb_eagle, trained on the two above", f, found) for f, found in shifted.items()]
    shift = shifted["lexical"]["shift"]
    return [
        "## Output length",
        "",
        "`laps-sd evaluate --cv 5 --features FEATURES --data TRACE`: Kendall τ between the predicted median and the "
        "real length with its 95 % bootstrap interval over groups, the median relative error, the share of requests "
        "inside the 80 % interval, and the best baseline (fitted out-of-fold on the same records; the category is not "
        "known at arrival).",
        "",
        "| trace | requests | features | τ | rel. error | in 80 % | best baseline τ |",
        "|---|---:|---|---|---:|---:|---|",
        *rows,
        "",
        "The last two rows are a hard shift, from chat to code edits, school maths and summaries. "
        f"The bundle's fingerprint {'flags' if shift['shifted'] else 'DOES NOT FLAG'} it (stability index "
        f"{shift['score']:.2f}, large above 0.25): do not serve such a bundle.",
        "",
    ]


def shares(values: dict[str, float | None], keys: Sequence[str]) -> str:
    return " / ".join("–" if values[key] is None else f"{100 * values[key]:.1f}" for key in keys)  # type: ignore[operator]


def acceptance(folder: Path) -> list[str]:
    rows = []
    for run in RUNS:
        figures = out_of_fold(folder, run)["acceptance"]
        cells = (
            shares(figures[name], STEPS)
            for name in ("mape_accept_length", "mape_accept_length_unseeded", "mape_accept_length_raw", "coverage_80")
        )
        rows.append(f"| {run} | {figures['n']:,} | {figures['kendall_tau']:.2f} | {' | '.join(cells)} |")
    return [
        "## Tokens per verify step",
        "",
        "`laps-sd evaluate --cv 5 --data RUN`: mean absolute percentage error of the tokens per step of the rest, "
        "after 0 / 4 / 8 / 16 / 32 steps, from the prompt's prior, from the run's mean as prior, and from the running "
        "mean alone; and the share of requests inside the 80 % predictive interval of the rest.",
        "",
        "| run | requests | τ at arrival | prompt prior, % | run's mean, % | running mean, % | in 80 %, % |",
        "|---|---:|---:|---|---|---|---|",
        *rows,
        "",
    ]


def execution(folder: Path) -> list[str]:
    error = "remaining_steps_median_relative_error"
    names = ("elapsed_share", f"{error}_known_length", "whole_request_median_relative_error_known_length", error)
    rows = []
    for run in RUNS:
        figures = out_of_fold(folder, run)["execution_time"]
        cells = [*(shares(figures[name], SEEN) for name in names), shares(figures["coverage_80"], SEEN)]
        rows.append(f"| {run} | {' | '.join(cells)} |")
    return [
        "## Execution time",
        "",
        "The same command: median relative error of the remaining verify steps of the requests that still run after "
        "0 / 8 / 16 / 32 steps. An error of the whole request says little without the share that has already elapsed. "
        "The paper reports 6.84 % overall and not how.",
        "",
        "| run | elapsed, % | known length, % of the remaining | known length, % of the whole "
        "| predicted length, % of the remaining | in 80 %, % |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--out", type=Path, default=DOCUMENT)
    arguments = parser.parse_args()
    head = [
        "# Prediction results",
        "",
        "Written by `python benchmarks/results_predictors.py DIR` (its first lines say what DIR holds): no number here "
        "was typed by hand. No request is predicted by a model that saw it or a prompt of its group. Read them as an "
        "upper estimate: features and constants were chosen by looking at the out-of-fold error of these same traces.",
        "",
    ]
    body = [line for part in (lengths, acceptance, execution) for line in part(arguments.dir)]
    write_text(arguments.out, "\n".join([*head, *body]).rstrip() + "\n")


if __name__ == "__main__":
    main()
