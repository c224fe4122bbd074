"""The page that ``laps-sd bench`` writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from laps_sd.report.comparison import policy_rows
from laps_sd.report.page import Page

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_SHOWN = ("mean", "p50", "p90", "p99")


def bench_report(result: Mapping[str, Any]) -> Page:
    """Build the page from the result of `laps_sd.serving.bench.run.run_bench`."""
    workload, policies = result["workload"], result["policies"]
    running = workload.get("url")
    slots = "unknown slots" if workload["slots"] is None else f"{workload['slots']} slots"
    servers = "real SGLang servers" if running is None else f"the server at {running}"
    page = Page("LAPS-SD live comparison", f"{workload['n']} requests, {slots}, {servers}")
    pace = "all at once" if workload["rate"] is None else f"Poisson arrivals, {workload['rate']:g} per second"
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
    page.figure(_latencies(policies), caption="Latency by policy; lower is better")
    if result["identical_tokens"]:
        page.text("Every request got the same token ids under every policy and in every round.")
    elif result["identical_tokens"] is False:
        page.note(f"Token ids differ between runs for {', '.join(result['different_requests'])}.")
    if workload["cpu"]:
        page.note("Measured on a CPU, where speculation is slower than plain decoding: compare policies, not speeds.")
    return page


def _latencies(policies: Mapping[str, Any]) -> Figure:
    from plotly.graph_objects import Bar, Figure

    bars = [
        Bar(name=name, x=list(_SHOWN), y=[figures["latency_s"][key] for key in _SHOWN])
        for name, figures in policies.items()
        if figures["latency_s"] is not None
    ]
    return Figure(bars, layout={"yaxis_title": "seconds", "barmode": "group"})
