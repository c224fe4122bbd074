"""Regenerate docs/results-simulation.md and docs/results-costs.md: laps-sd in the simulator, on real runs and arrivals.

    python benchmarks/results_simulation.py DIR [--seeds N] [--few N] [--workers N] [--parts PART,…]

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
from laps_sd.scheduler.outcomes import REFERENCE, PolicySummary
from laps_sd.scheduler.prediction import Prediction
from laps_sd.scheduler.settings import Settings
from laps_sd.simulation.replay import find_predictions, parse_predictions
from laps_sd.simulation.run import Plan, run

REPLAYS = ("sdb_eagle", "sdb_ngram", "specbench_sps_bn")
ARRIVALS = ("azure_2023_conv", "mooncake_conversation", "mooncake_synthetic")
POINTS = ((1, 0.8), (16, 0.95))
PEERS = ("fcfs", "hrrn", "sjf-predicted", "las", "mlfq", "gittins", "laps-sd:paper", "laps-sd", REFERENCE)
COST = Path(__file__).parent / "cost-model-cpu.json"
DOCS = Path(__file__).parent.parent / "docs"
#: The points at which launches cost something, and the settings of `tail` along the curve.
LAUNCH_POINTS = ((16, 1.1), (16, 0.95), (16, 1.0), (64, 1.1), (4, 0.9), (16, 0.9))
SIMPLE = ("fcfs", "hrrn", "hrrn-predicted", "boost", "sjf-predicted")
PARTS_OF_OURS = ("no-preemption", "no-ride", "no-gather", "no-boost", "no-weighing", "length-only")
SHORT_TAIL = "laps-sd:tail"
CURVE = (0.0, 0.005, 0.01, 0.02, 0.05, 0.12, 0.3)
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
        "cost_model": "unit", "refine": None, "acceptance_from": None, "requests": None,
        "seeds": tuple(range(ARGS.seeds)), "sweep": (), "ablation": False, "settings": (), "workers": ARGS.workers,
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
    fcfs, oracle = results.policies["fcfs"], results.policies[REFERENCE]
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
    ratio = p99(ours) / p99(policies[REFERENCE])
    verdicts.check(f"{where}: p99 {ratio:.2f} of {REFERENCE}, at most {bound}", ratio <= bound)


def judge_order(verdicts: Verdicts, where: str, policies: dict[str, PolicySummary]) -> None:
    """The mean is never above that of a peer by more than 1 %."""
    ours = mean(policies["laps-sd"])
    best = min((mean(s), name) for name, s in policies.items() if name not in ("laps-sd", REFERENCE, "gittins"))
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
        "| trace | slots | load | noise | fcfs | sjf-predicted | laps-sd | oracle-ride | gap closed | / better |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    policies = ("fcfs", "sjf-predicted", "laps-sd", REFERENCE)
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


#: What becomes of the KV of a preempted request, and how a prompt is prefilled.
MODES: dict[str, dict[str, object]] = {
    "KV kept": {},
    "KV dropped": {"keep_kv": False},
    "chunks of 512": {"chunk_tokens": 512},
}
OPTIONS = {"KV kept": "", "KV dropped": " --drop-kv", "chunks of 512": " --chunk-tokens 512"}


@dataclass(frozen=True)
class Place:
    """One point at which the policies are compared under costs."""

    trace: Path
    source: str
    model: str
    mode: str
    slots: int
    load: float

    def __str__(self) -> str:
        return f"{self.trace.stem} {self.source}, {self.model}, {self.mode}, {self.slots}/{self.load}"

    def plan(self, policies: Sequence[str], **more: object) -> Plan:
        """Return the replays of these policies at this point."""
        predictions = predictions_of(self.trace) if self.source == "oof" else self.source
        return plan(
            self.trace, self.slots, self.load, predictions, policies,
            cost_model=self.model, **MODES[self.mode], **more,
        )  # fmt: skip


@dataclass(frozen=True)
class Group:
    """Points that are replayed with the same seeds."""

    models: tuple[str, ...]
    modes: tuple[str, ...]
    sources: tuple[str, ...]
    points: tuple[tuple[int, float], ...]
    seeds: int

    def places(self) -> Iterator[Place]:
        """Yield the points, the traces together."""
        for model, mode, source, point, trace in product(
            self.models, self.modes, self.sources, self.points, traces(REPLAYS)
        ):
            yield Place(trace, source, model, mode, *point)

    def command(self) -> str:
        """Return what prints the same."""
        each = ", ".join(f"{slots}/{load}" for slots, load in self.points)
        return (
            f"`laps-sd simulate --trace NAME.jsonl --predictions {'|'.join(self.sources)} --cost-model "
            f"{'|'.join(self.models)}{'|'.join(OPTIONS[mode] for mode in self.modes)} --slots S --load L --seeds "
            f"{self.seeds} --policies …`, S/L of {each}"
        )


#: The whole grid would be days; every kind of point is here.
GROUPS = (
    Group(("gpu",), ("KV kept",), ("oof",), LAUNCH_POINTS, 2),
    Group(("gpu",), ("KV kept",), ("noise:0.77",), ((16, 0.95), (16, 1.1)), 2),
    Group(("gpu-small", "gpu-large", "cpu"), ("KV kept",), ("oof",), ((16, 1.1),), 2),
    Group(("gpu",), ("KV dropped", "chunks of 512"), ("oof",), ((16, 1.1),), 2),
)


def launches(verdicts: Verdicts) -> Part:
    """Launches that cost: every policy and every part of ours, mean and tail relative to sjf-predicted."""
    lines = [
        "## Launches that cost: mean and tail of every policy",
        "",
        "Mean / p99 latency divided by those of sjf-predicted. las, mlfq, gittins and the paper's preset preempt at a "
        "loss where launches cost, and stand in the last part of this page. `cpu` is the model of "
        f"`benchmarks/{COST.name}`; docs/simulator.md says where the others come from.",
        "",
    ]
    ours = tuple(f"laps-sd:{preset}" for preset in PARTS_OF_OURS)
    names = (*SIMPLE, *ours, SHORT_TAIL, "laps-sd", REFERENCE)
    for group in GROUPS:
        found = {place: replayed(place.plan(names, seeds=tuple(range(group.seeds)))) for place in group.places()}
        lines += [group.command() + ":", ""]
        for source, model, mode in product(group.sources, group.models, group.modes):
            here = [p for p in found if (p.source, p.model, p.mode) == (source, model, mode)]
            lines += [f"### {source}, {model}, {mode}", "", *launch_table(here, found, names)]
        for place, result in found.items():
            judge_launches(verdicts, place, result.policies)
    return [*lines, *curve()]


def launch_table(places: Sequence[Place], found: dict[Place, Found], names: Sequence[str]) -> Part:
    """One row for each policy, one column for each point; then how often ours preempts, and its standard error."""
    lines = [
        "| policy | " + " | ".join(f"{p.trace.stem} {p.slots}/{p.load}" for p in places) + " |",
        "|---" + "|---:" * len(places) + "|",
    ]
    lines += [f"| {name} | " + " | ".join(_relative(found[p].policies, name) for p in places) + " |" for name in names]
    ours = [found[p].policies["laps-sd"]["preemptions"] / found[p].workload["n"] for p in places]
    gaps = [found[p].policies["laps-sd"]["gap_closed"] for p in places]
    lines.append("| preemptions of laps-sd per request | " + " | ".join(f"{n:.3f}" for n in ours) + " |")
    lines.append("| gap closed | " + " | ".join("–" if gap is None else f"{gap:.2f}" for gap in gaps) + " |")
    return [*lines, ""]


def _relative(policies: dict[str, PolicySummary], name: str) -> str:
    s, base = policies[name], policies["sjf-predicted"]
    return f"{mean(s) / mean(base):.3f} / {p99(s) / p99(base):.2f}"


def judge_launches(verdicts: Verdicts, place: Place, policies: dict[str, PolicySummary]) -> None:
    ours, base = policies["laps-sd"], policies["sjf-predicted"]
    rivals = {name: s for name, s in policies.items() if name not in ("laps-sd", SHORT_TAIL, REFERENCE)}
    best = min(rivals, key=lambda name: mean(rivals[name]))
    ratio = mean(ours) / mean(rivals[best])
    verdicts.check(f"{place}: mean {ratio:.3f} of the best, {best}; at most 1.005", ratio <= 1.005)
    if place.slots == 16 and place.load in _TAIL_MARKS:
        tail, most = p99(ours) / p99(base), _TAIL_MARKS[place.load]
        verdicts.check(f"{place}: p99 {tail:.2f} of sjf-predicted, at most {most}", tail <= most)
    if place.load == 1.1:
        ratio = mean(ours) / mean(base)
        if place.source == "oof":
            verdicts.check(f"{place}: mean {ratio:.3f} of sjf-predicted, aim 0.97", ratio <= 0.97)
        short = policies[SHORT_TAIL]
        pair = mean(short) / mean(base), p99(short) / p99(base)
        verdicts.check(
            f"{place}: {SHORT_TAIL} mean {pair[0]:.3f} and p99 {pair[1]:.2f} of sjf-predicted, at most 1.06 and 0.65",
            pair[0] <= 1.06 and pair[1] <= 0.65,
        )
    never = policies["laps-sd:no-preemption"]
    pair = mean(ours) / mean(never), p99(ours) / p99(never)
    verdicts.check(
        f"{place}: mean {pair[0]:.3f} and p99 {pair[1]:.2f} of no-preemption, at most 1.005 and 1.05",
        pair[0] <= 1.005 and pair[1] <= 1.05,
    )


_TAIL_MARKS = {0.95: 0.95, 1.0: 0.88, 1.1: 0.88}


def curve() -> Part:
    """The Pareto curve: mean against tail as the operator's setting grows, the other policies as points."""
    seeds = 2
    lines = [
        "## Mean against tail",
        "",
        f"16 slots, load 1.1, model gpu, KV kept, out-of-fold predictions, {seeds} seeds: `laps-sd simulate --trace "
        f"NAME.jsonl --predictions oof --cost-model gpu --slots 16 --load 1.1 --seeds {seeds} --set tail=T`; mean / "
        "p99 relative to sjf-predicted's. The line is laps-sd, the points are the others.",
        "",
        "| trace | " + " | ".join(f"tail {t:g}" for t in CURVE) + " | " + " | ".join(SIMPLE) + " |",
        "|---" + "|---:" * (len(CURVE) + len(SIMPLE)) + "|",
    ]
    for trace in traces(REPLAYS):
        place, few = Place(trace, "oof", "gpu", "KV kept", 16, 1.1), tuple(range(seeds))
        points = replayed(place.plan(SIMPLE, seeds=few)).policies
        line = {
            f"tail {t:g}": replayed(place.plan(("laps-sd",), settings=(f"tail={t}",), seeds=few)).policies["laps-sd"]
            for t in CURVE
        }
        cells = [_relative({**points, **line}, name) for name in (*line, *SIMPLE)]
        lines.append(f"| {trace.stem} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def spoiled_costly(verdicts: Verdicts) -> Part:
    """Useless, adversarial and constant predictions where launches cost."""
    lines = [
        "## Useless, adversarial and constant predictions, with launches that cost",
        "",
        "As in docs/results-simulation.md with `--cost-model gpu --seeds 2`; constant: every request is predicted to "
        "be like the middle one. las preempts at a loss there, so the better of fcfs and las is fcfs.",
        "",
        "| trace | slots, load | predictions | fcfs | sjf-predicted | laps-sd | / fcfs |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    policies = ("fcfs", "sjf-predicted", "laps-sd")
    for trace, (slots, load) in product(traces(REPLAYS), ((1, 0.8), (16, 1.1))):
        known = predictions_of(trace)
        sources = {"shuffled": f"shuffled:{known}", "reversed": f"reversed:{known}", "constant": constant(trace)}
        for spoil, bound in (("shuffled", 1.05), ("reversed", 1.15), ("constant", 1.05)):
            place = plan(trace, slots, load, sources[spoil], policies, cost_model="gpu", seeds=(0, 1))
            found = replayed(place).policies
            ratio = mean(found["laps-sd"]) / mean(found["fcfs"])
            cells = " | ".join(f"{mean(found[p]):.1f}" for p in policies)
            lines.append(f"| {trace.stem} | {slots}, {load} | {spoil} | {cells} | {ratio:.3f} |")
            verdicts.check(f"{trace.stem} {slots}/{load} {spoil}, gpu: {ratio:.3f}, at most {bound}", ratio <= bound)
    return [*lines, ""]


def constant(trace: Path) -> str:
    """Predictions beside a replay that are all the middle one of the out-of-fold predictions."""
    kept = trace.with_suffix(".constant.jsonl")
    if not kept.exists():
        text = Path(predictions_of(trace)).read_text(encoding="utf-8")
        rows = [json.loads(line) for line in text.splitlines()]
        means = [Prediction.from_wire(row["prediction"]).length.mean() for row in rows]
        middle = rows[sorted(range(len(rows)), key=means.__getitem__)[len(rows) // 2]]["prediction"]
        same = [json.dumps({"request_id": row["request_id"], "prediction": middle}) + "\n" for row in rows]
        write_text(kept, "".join(same))
    return str(kept)


PARTS = {
    "replay": replays,
    "spoiled": spoiled,
    "arrivals": arrivals,
    "cost": costly,
    "launches": launches,
    "spoiled-costly": spoiled_costly,
}
#: Which parts a document consists of: those in which launches are free, and those in which they cost.
DOCUMENTS = {
    "results-simulation.md": ("replay", "spoiled", "arrivals"),
    "results-costs.md": ("launches", "spoiled-costly", "cost"),
}


def main() -> None:
    kept = ARGS.dir / "results"
    kept.mkdir(exist_ok=True)
    for part in ARGS.parts.split(","):
        verdicts = Verdicts()
        lines = PARTS[part](verdicts)
        write_text(kept / f"{part}.json", json.dumps({"lines": lines, "verdicts": verdicts.rows}))
        for name, parts in DOCUMENTS.items():
            if part in parts:
                write(kept, ARGS.out / name, parts)


def write(kept: Path, out: Path, parts: Sequence[str]) -> None:
    """Write a document from those of its parts that are done."""
    found = {p: json.loads((kept / f"{p}.json").read_text()) for p in parts if (kept / f"{p}.json").exists()}
    rows = [row for part in found.values() for row in part["verdicts"]]
    missed = [text for text, held in rows if not held]
    head = [
        "# Simulation results" + (", with launches that cost" if "cost" in parts else ""),
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
    write_text(out, "\n".join([*head, *body]).rstrip() + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--few", type=int, default=2, help="seeds of the parts other than replay")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of the documents")
    parser.add_argument("--workers", type=int, default=1)
    ARGS = parser.parse_args()
    main()
