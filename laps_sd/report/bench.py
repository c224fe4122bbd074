"""The page that ``laps-sd bench`` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from laps_sd.report.comparison import policy_rows, ratio_rows, simulated_rows, step_rows
from laps_sd.report.page import Page
from laps_sd.report.served import MOST_ROWS, Row, gantt, latency_distribution, queue_over_time

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

#: By policy: (round, requests waiting).
Queues = Mapping[str, Sequence[tuple[int, int]]]
_SHOWN = ("mean", "p50", "p90", "p99")


def bench_report(
    result: Mapping[str, Any],
    requests: Sequence[Row] = (),
    queues: Mapping[str, Sequence[tuple[int, int]]] | None = None,
) -> Page:
    """Build the page of a live comparison.

    Parameters
    ----------
    result : mapping
        From `laps_sd.serving.bench.run.run_bench`.
    requests : sequence of mapping, optional
        The lines of ``requests.jsonl``.
    queues : mapping, optional
        By policy: (round, requests waiting) of its first turn.
    """
    workload, policies = result["workload"], result["policies"]
    running = workload.get("url")
    slots = "unknown slots" if workload["slots"] is None else f"{workload['slots']} slots"
    servers = "real SGLang servers" if running is None else f"the server at {running}"
    page = Page("LAPS-SD live comparison", f"{workload['n']} requests, {slots}, {servers}")
    pace = pace_of(workload)
    asked = f"requests, {pace}, at most {workload['max_new_tokens']} tokens each, greedy decoding"
    if running is None:
        page.text(
            f"The same {asked}; each policy on a fresh server, {workload['rounds']} turn(s) each, one after the other."
        )
    else:
        page.text(
            f"{workload['n']} {asked}, sent once to a server that ran already and scheduled with {', '.join(policies)}."
        )
    headers, rows = policy_rows(policies)
    page.table(headers, rows, caption="Latencies in seconds, as a client sees them")
    headers, ratios = ratio_rows(result["ratios"])
    if ratios:
        page.table(headers, ratios, caption="Ratios of latencies of the same requests, with 95 % intervals")
    if any(result.get("steps", {}).values()):
        page.table(*step_rows(result), caption="Decode steps of full batches, and what is done in a second")
    page.figure(_latencies(policies), caption="Latency by policy; lower is better")
    if requests:
        page.figure(latency_distribution(requests), caption="Share of requests finished; further left is better")
    if any((row["laps_sd"] or {}).get("rounds") for row in requests):
        page.heading("Who ran when")
        page.figure(
            gantt(requests),
            caption=f"The first {MOST_ROWS} requests of the first turn: waiting, holding a slot, preempted. "
            "A round is a prefill or one decode step of all that run.",
        )
    if queues:
        page.figure(queue_over_time(queues), caption="The queue in the first turn of each policy")
    if result.get("simulated"):
        page.heading("The simulator against reality")
        page.text(
            "The very requests of each turn, simulated under its policy with the predictions that its server had: in "
            "rounds, where a prefill or a step counts 1, and in seconds, with a cost model fitted to the same turn."
        )
        page.table(*simulated_rows(result["simulated"]))
    if result["identical_tokens"]:
        page.text("Every request got the same token ids under every policy and in every round.")
    elif result["identical_tokens"] is False:
        page.note(f"Token ids differ between runs for {', '.join(result['different_requests'])}.")
    if workload["cpu"]:
        page.note("Measured on a CPU, where speculation is slower than plain decoding: compare policies, not speeds.")
    return page


def pace_of(workload: Mapping[str, Any]) -> str:
    """Return in words how the requests arrived."""
    if workload["arrivals"] == "closed":
        return f"a closed loop of {workload['clients']} clients"
    if workload["arrivals"] == "trace":
        return "at the times of the trace"
    if workload["rate"] is None:
        return "all at once"
    unit = "second" if workload["clock"] == "seconds" else "round of the scheduler"
    share = "" if workload["load"] is None else f", {workload['load']:g} of the measured capacity"
    kind = "Poisson" if workload["burstiness"] == 1 else f"bursty (CV {workload['burstiness']:g})"
    return f"{kind} arrivals, {workload['rate']:.3g} per {unit}{share}"


def _latencies(policies: Mapping[str, Any]) -> Figure:
    from plotly.graph_objects import Bar, Figure

    bars = [
        Bar(name=name, x=list(_SHOWN), y=[figures["latency_s"][key] for key in _SHOWN])
        for name, figures in policies.items()
        if figures["latency_s"] is not None
    ]
    return Figure(bars, layout={"yaxis_title": "seconds", "barmode": "group"})
