"""Regenerate docs/results-simulation.md: what the simulator says about laps-sd, on real runs and real arrivals.

    python benchmarks/results_simulation.py DIR [--seeds N] [--few N] [--workers N]
                                            [--parts replay,spoiled,cost,arrivals] [--out FILE]

DIR holds traces of request records (none of them is part of this repository):

- replays ``sdb_eagle.jsonl``, ``sdb_ngram.jsonl`` and ``specbench_sps_bn.jsonl``: prompts, lengths and accept lengths;
- arrivals ``azure_2023_conv.jsonl``, ``mooncake_conversation.jsonl`` and ``mooncake_synthetic.jsonl``, made by
  ``laps-sd import arrivals``;
- ``NAME.predictions.jsonl`` beside a replay and ``results/``: what an earlier run left, so that one that was
  interrupted goes on where it stopped. Delete both when the code has changed.

Every number in the document is printed by this script; each table names the command that gives the same.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from laps_sd.data import read_records
from laps_sd.files import write_text
from laps_sd.scheduler.outcomes import PolicySummary
from laps_sd.scheduler.settings import Settings
from laps_sd.simulation.replay import find_predictions, parse_predictions
from laps_sd.simulation.run import Plan, run

REPLAYS = ("sdb_eagle", "sdb_ngram", "specbench_sps_bn")
ARRIVALS = ("azure_2023_conv", "mooncake_conversation", "mooncake_synthetic")
POINTS = ((1, 0.8), (16, 0.95))
PEERS = ("fcfs", "hrrn", "sjf-predicted", "las", "mlfq", "gittins", "laps-sd:paper", "laps-sd", "oracle-srpt")
COST = Path(__file__).parent / "cost-model-cpu.json"
DOCUMENT = Path(__file__).parent.parent / "docs" / "results-simulation.md"
#: Where each part keeps its text, so that parts can be run on their own.
Part = list[str]


@dataclass
class Verdicts:
    """What must hold, and whether it did."""

    rows: list[tuple[str, bool]] = field(default_factory=list)

    def check(self, text: str, held: bool) -> None:
        """Note whether a claim of the page holds, and tell it."""
        self.rows.append((text, held))
        print(("  ok   " if held else "  MISS ") + text, file=sys.stderr)


def plan(trace: Path, slots: int, load: float, predictions: str, policies: Sequence[str], **more: object) -> Plan:
    usual: dict[str, object] = {
        "bundle": None, "rate": None, "burstiness": 1.0, "kv_tokens": None, "keep_kv": True, "chunk_tokens": 8192,
        "cost_model": "unit", "acceptance_from": None, "requests": None, "seeds": tuple(range(ARGS.seeds)),
        "sweep": (), "ablation": False, "settings": (), "workers": ARGS.workers,
    }  # fmt: skip
    return Plan(
        trace=trace, slots=slots, load=load, predictions=predictions, policies=tuple(policies), **{**usual, **more}
    )  # type: ignore[arg-type]


@dataclass(frozen=True)
class Found:
    """What is kept of the results of one plan."""

    workload: dict[str, Any]
    policies: dict[str, PolicySummary]
    ablation: dict[str, PolicySummary]


def replayed(plan: Plan) -> Found:
    """Replay, unless an earlier run did."""
    key = hashlib.sha256(repr((plan, Settings())).encode()).hexdigest()[:16]
    kept = ARGS.dir / "results" / f"{key}.json"
    if not kept.exists():
        results = run(plan)
        found = {"workload": results.workload, "policies": results.policies, "ablation": results.ablation}
        write_text(kept, json.dumps(found))
    return Found(**json.loads(kept.read_text(encoding="utf-8")))


def traces(names: Sequence[str]) -> list[Path]:
    """Those of the named traces that DIR holds."""
    return [path for name in names if (path := ARGS.dir / f"{name}.jsonl").exists()]


def few() -> tuple[int, ...]:
    """Seeds of the parts in which nothing is close."""
    return tuple(range(min(ARGS.seeds, ARGS.few)))


def mean(s: PolicySummary) -> float:
    assert s["latency_s"] is not None
    return s["latency_s"]["mean"]


def p99(s: PolicySummary) -> float:
    assert s["latency_s"] is not None
    return s["latency_s"]["p99"]


def table(results: Found, summaries: dict[str, PolicySummary]) -> Part:
    """Markdown rows: mean and p99 relative to fcfs and to the clairvoyant reference."""
    fcfs, oracle = results.policies["fcfs"], results.policies["oracle-srpt"]
    lines = [
        "| policy | mean s | / fcfs | gap closed | p99 / oracle | slowdown | preempted per request |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, s in summaries.items():
        gap = "–" if s["gap_closed"] is None else f"{s['gap_closed']:.2f}"
        lines.append(
            f"| {name} | {mean(s):.1f} | {mean(s) / mean(fcfs):.3f} | {gap} | {p99(s) / p99(oracle):.2f} | "
            f"{s['slowdown_mean'] or 0:.2f} | {s['preemptions'] / results.workload['n']:.2f} |"
        )
    return [*lines, ""]


def predictions_of(trace: Path) -> str:
    """Out-of-fold predictions of a replay, fitted once and kept beside it; the same as ``--predictions oof``."""
    kept = trace.with_suffix(".predictions.jsonl")
    if not kept.exists():
        usable = [r for r in read_records(trace) if not r.censored and r.output_tokens > 0]
        option = parse_predictions("oof", bundle=False, prompts=True)
        found = find_predictions(option, usable, bundle=None, seed=0).predictions
        rows = [
            {"request_id": r.request_id, "prediction": p.to_wire()} for r, p in zip(usable, found, strict=True) if p
        ]
        write_text(kept, "".join(json.dumps(row) + "\n" for row in rows))
    return str(kept)


def replays(verdicts: Verdicts) -> Part:
    """The three real runs: peers, the paper's preset, the ablation."""
    lines = [
        "## Real runs, out-of-fold predictions, free preemption",
        "",
        "`laps-sd simulate --trace NAME.jsonl --predictions oof --cost-model unit --slots S --load L "
        f"--seeds {ARGS.seeds} --ablation`",
        "",
    ]
    for trace in traces(REPLAYS):
        name = trace.stem
        for slots, load in POINTS:
            results = replayed(plan(trace, slots, load, predictions_of(trace), PEERS, ablation=True))
            tau = results.workload["predictions_kendall_tau"]
            lines += [f"### {name}, {slots} slot(s), load {load} (Kendall τ of the lengths {tau:.2f})", ""]
            lines += [*table(results, results.policies), "Ablation:", "", *table(results, results.ablation)]
            judge_replay(verdicts, f"{name} {slots}/{load}", results, slots)
    return lines


def judge_replay(verdicts: Verdicts, where: str, results: Found, slots: int) -> None:
    ours, policies = results.policies["laps-sd"], results.policies
    least = {"sdb_eagle": 0.74, "specbench_sps_bn": 0.60}.get(where.split()[0])
    gap = ours["gap_closed"]
    if least is not None and gap is not None:
        verdicts.check(f"{where}: gap closed {gap:.2f}, at least {least}", gap >= least)
    if where.startswith("sdb_eagle 1/"):
        gain = 1 - mean(ours) / mean(policies["fcfs"])
        verdicts.check(f"{where}: mean {gain:.0%} below fcfs, at least 39 %", gain >= 0.39)
    judge_order(verdicts, where, policies)
    bound = 1.5 if slots == 1 else 1.25
    ratio = p99(ours) / p99(policies["oracle-srpt"])
    verdicts.check(f"{where}: p99 {ratio:.2f} of oracle-srpt, at most {bound}", ratio <= bound)


def judge_order(verdicts: Verdicts, where: str, policies: dict[str, PolicySummary]) -> None:
    """The mean is never above that of a peer by more than 1 %."""
    ours = mean(policies["laps-sd"])
    best = min((mean(s), name) for name, s in policies.items() if name not in ("laps-sd", "oracle-srpt", "gittins"))
    verdicts.check(f"{where}: mean {ours / best[0]:.3f} of {best[1]}, at most 1.01", ours <= 1.01 * best[0])


def spoiled(verdicts: Verdicts) -> Part:
    """Useless and adversarial predictions."""
    lines = [
        "## Useless and adversarial predictions",
        "",
        "`--predictions shuffled` hands the predictions to random requests, `reversed` the shortest to the longest. "
        "The default policy must stay within 5 % and 15 % of the better of fcfs and las.",
        "",
        "| trace | slots, load | predictions | fcfs | las | sjf-predicted | laps-sd | / better of fcfs, las |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    policies = ("fcfs", "las", "sjf-predicted", "laps-sd")
    for trace in traces(REPLAYS):
        name = trace.stem
        for slots, load in POINTS:
            for spoil, bound in (("shuffled", 1.05), ("reversed", 1.15)):
                found = replayed(
                    plan(trace, slots, load, f"{spoil}:{predictions_of(trace)}", policies, seeds=few())
                ).policies
                ratio = mean(found["laps-sd"]) / min(mean(found["fcfs"]), mean(found["las"]))
                cells = " | ".join(f"{mean(found[p]):.1f}" for p in policies)
                lines.append(f"| {name} | {slots}, {load} | {spoil} | {cells} | {ratio:.3f} |")
                verdicts.check(f"{name} {slots}/{load} {spoil}: {ratio:.3f}, at most {bound}", ratio <= bound)
    return [*lines, ""]


def costly(verdicts: Verdicts) -> Part:
    """Prefill and recomputation that take time."""
    model = json.loads(COST.read_text(encoding="utf-8"))["model"]
    shown = ", ".join(f"{k} {v:.4g}" for k, v in model.items() if v is not None)
    lines = [
        "## Prefill and preemption that cost",
        "",
        f"Cost model fitted to the shipped n-gram trace (`benchmarks/{COST.name}`: {shown}); KV kept and evictable "
        "after a preemption, or dropped down to the prompt (`--drop-kv`).",
        "",
    ]
    for trace in traces(REPLAYS):
        name = trace.stem
        for (slots, load), keep in product(POINTS, (True, False)):
            results = replayed(
                plan(
                    trace, slots, load, predictions_of(trace), PEERS, cost_model=str(COST), keep_kv=keep, seeds=few()
                )
            )  # fmt: skip
            lines += [f"### {name}, {slots} slot(s), load {load}, KV {'kept' if keep else 'dropped'}", ""]
            lines += table(results, results.policies)
            where = f"{name} {slots}/{load}, costly, KV {'kept' if keep else 'dropped'}"
            judge_order(verdicts, where, results.policies)
            per_request = results.policies["laps-sd"]["preemptions"] / results.workload["n"]
            verdicts.check(f"{where}: {per_request:.2f} preemptions a request, below 1", per_request < 1)
    return lines


def arrivals(verdicts: Verdicts) -> Part:
    """Production arrivals, acceptance borrowed from the real runs, noisy predictions."""
    lines = [
        "## Production arrivals",
        "",
        "Windows of 2,000 requests; `--acceptance-from sdb_eagle.jsonl --predictions noise:S --requests 2000 "
        f"--seeds {len(few())}`; mean latency in steps.",
        "",
        "| trace | slots | load | noise | fcfs | sjf-predicted | laps-sd | oracle-srpt | gap closed | / better |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    policies = ("fcfs", "sjf-predicted", "laps-sd", "oracle-srpt")
    for name, slots, load, noise in arrival_points():
        found = replayed(
            plan(
                ARGS.dir / f"{name}.jsonl", slots, load, f"noise:{noise}", policies, requests=2000,
                acceptance_from=ARGS.dir / "sdb_eagle.jsonl", seeds=few(),
            )
        ).policies  # fmt: skip
        ratio = mean(found["laps-sd"]) / min(mean(found["fcfs"]), mean(found["sjf-predicted"]))
        gap = found["laps-sd"]["gap_closed"]
        cells = " | ".join(f"{mean(found[p]):.1f}" for p in policies)
        shown = "–" if gap is None else f"{gap:.2f}"
        lines.append(f"| {name} | {slots} | {load} | {noise} | {cells} | {shown} | {ratio:.3f} |")
        verdicts.check(f"{name} {slots}/{load} noise {noise}: {ratio:.3f} of the better, at most 1.02", ratio <= 1.02)
    return [*lines, ""]


def arrival_points() -> Iterator[tuple[str, int, float, float]]:
    for name in (t.stem for t in traces(ARRIVALS)):
        for slots in (16, 64):
            for load in (0.7, 0.9, 1.1):
                for noise in (0.6, 0.9):
                    yield name, slots, load, noise


PARTS = {"replay": replays, "spoiled": spoiled, "cost": costly, "arrivals": arrivals}


def main() -> None:
    kept = ARGS.dir / "results"
    kept.mkdir(exist_ok=True)
    for part in ARGS.parts.split(","):
        verdicts = Verdicts()
        lines = PARTS[part](verdicts)
        write_text(kept / f"{part}.json", json.dumps({"lines": lines, "verdicts": verdicts.rows}))
        write(kept)


def write(kept: Path) -> None:
    """Write the document from the parts that are done."""
    found = {p: json.loads((kept / f"{p}.json").read_text()) for p in PARTS if (kept / f"{p}.json").exists()}
    rows = [row for part in found.values() for row in part["verdicts"]]
    missed = [text for text, held in rows if not held]
    head = [
        "# Simulation results",
        "",
        "Written by `python benchmarks/results_simulation.py DIR` (its first lines say what DIR holds): no number here "
        "was typed by hand. Simulated seconds; with the unit cost model a second is a verify step. Out-of-fold "
        "predictions: no request is predicted by a model that saw it or its group. Censored requests are left out.",
        "",
        f"{len(rows) - len(missed)} of {len(rows)} of the marks set beforehand hold." + (" Missed:" if missed else ""),
        "",
        *(f"- {text}" for text in missed),
        "",
    ]
    body = [line for part in found.values() for line in part["lines"]]
    write_text(ARGS.out, "\n".join([*head, *body]).rstrip() + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--few", type=int, default=2, help="seeds of the parts other than replay")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--out", type=Path, default=DOCUMENT)
    parser.add_argument("--workers", type=int, default=1)
    ARGS = parser.parse_args()
    main()
