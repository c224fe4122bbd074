"""The part of a simulation's report that says where laps-sd gains nothing, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps_sd.scheduler.cost_fit import slower_from
from laps_sd.scheduler.outcomes import REFERENCE, PolicySummary
from laps_sd.scheduler.service import CostModel
from laps_sd.scheduler.simulator.study import mean_slowdowns

if TYPE_CHECKING:
    from laps_sd.simulation.run import Results

OURS = "laps-sd"
#: Differences below this share are not worth a sentence.
NOTICEABLE = 0.01


def findings(results: Results) -> list[str]:
    """Return sentences, each about one thing that a reader might otherwise not notice."""
    ours = results.policies.get(OURS) or results.ablation.get(OURS)
    found = [_speculation(results)]
    compared = [s for name in (OURS, "fcfs", REFERENCE) for t in results.trials.get(name, ()) for s in [t.summary]]
    if any(s["latency_s"] is None for s in compared):
        found.append("In some replay no request finished, so nothing can be said about what is gained.")
    elif ours is not None:
        found += [_nothing_to_gain(ours), _better(results, ours), _tail(results, ours), _losers(results)]
        found += [_posterior(results, ours), _preemption(results, ours)]
    said = [sentence for sentence in found if sentence]
    return said or ["Nothing of the kind was found on this workload."]


def _nothing_to_gain(ours: PolicySummary) -> str:
    if ours["gap_closed"] is not None:
        return ""
    return (
        "There is nothing to gain here: fcfs is within 3 % of the clairvoyant reference. Ordering by length helps only "
        "where requests wait for each other."
    )


def _better(results: Results, ours: PolicySummary) -> str:
    mine = _mean(ours)
    better = [
        f"{name} ({1 - _mean(s) / mine:.1%})"
        for name, s in results.policies.items()
        if name not in (OURS, REFERENCE, "oracle-srpt") and _mean(s) < mine * (1 - NOTICEABLE)
    ]
    return f"Lower mean latency than laps-sd: {', '.join(better)}." if better else ""


def _tail(results: Results, ours: PolicySummary) -> str:
    fcfs = results.policies.get("fcfs")
    if fcfs is None or fcfs["latency_s"] is None or ours["latency_s"] is None:
        return ""
    ratio = ours["latency_s"]["p99"] / fcfs["latency_s"]["p99"]
    if ratio <= 1 + NOTICEABLE:
        return ""
    oracle = results.policies.get(REFERENCE)
    beside = ""
    if oracle is not None and oracle["latency_s"] is not None:
        beside = f" ({REFERENCE}: {oracle['latency_s']['p99'] / fcfs['latency_s']['p99']:.2f})"
    return (
        f"The mean is paid for in the tail: p99 latency is {ratio:.2f} times that of fcfs{beside}. "
        "Whoever puts short requests first makes long ones wait."
    )


def _losers(results: Results) -> str:
    if not {"fcfs", OURS} <= results.trials.keys():
        return ""
    fcfs, ours = (mean_slowdowns(results.trials[name]) for name in ("fcfs", OURS))
    pairs = zip(fcfs, ours, strict=False)
    worse = [theirs[0] for theirs, mine in pairs if mine[2] > theirs[2] * (1 + NOTICEABLE)]
    if not worse or len(fcfs) != len(ours):  # not the same requests finished
        return ""
    return f"Requests with answers of about {min(worse):.0f} tokens or more are slower than under fcfs."


def _posterior(results: Results, ours: PolicySummary) -> str:
    names = {"laps-sd:length-only": "acceptance", "laps-sd:no-posterior": "the online posterior"}
    told = []
    for preset, part in names.items():
        if preset in results.ablation and results.ablation[preset]["latency_s"] is not None:
            gain = 1 - _mean(ours) / _mean(results.ablation[preset])
            told.append(f"{part} {gain:+.1%}")
    if not told:
        return ""
    return f"What knowing more than the length is worth here (share of the mean latency): {', '.join(told)}."


def _preemption(results: Results, ours: PolicySummary) -> str:
    per_request = ours["preemptions"] / results.workload["n"]
    if per_request == 0:
        return ""
    tokens = ours["recomputed_tokens"] / results.workload["n"]
    return f"laps-sd preempts {per_request:.2f} times and recomputes {tokens:.1f} tokens per request."


def _speculation(results: Results) -> str:
    """Speculation that is slower than plain decoding at some batch, if the cost model knows both."""
    cost = CostModel.from_dict(results.workload["cost_model"])
    accept = results.workload["accept_length_mean"]
    batch = slower_from(cost, accept, results.workload["slots"])
    if batch is None:
        return ""
    return (
        f"From batch {batch} on speculation is slower than plain decoding with this cost model: "
        f"{cost.tau(batch) / accept * 1e3:.1f} against {(cost.plain_tau(batch) or 0) * 1e3:.1f} ms per token."
    )


def _mean(summary: PolicySummary) -> float:
    return float("nan") if summary["latency_s"] is None else summary["latency_s"]["mean"]
