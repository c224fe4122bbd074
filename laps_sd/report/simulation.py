"""The HTML report of ``laps-sd simulate``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from plotly.graph_objects import Bar, Figure, Scatter

from laps_sd.report.comparison import policy_rows
from laps_sd.report.page import Page
from laps_sd.report.simulation_findings import findings
from laps_sd.scheduler.outcomes import PolicySummary
from laps_sd.scheduler.simulator.study import CDF_QUANTILES, mean_slowdowns

if TYPE_CHECKING:
    from laps_sd.simulation.run import Results

#: laps-sd with an ever shorter tail.
TAIL_LINE = ("laps-sd:no-boost", "laps-sd", "laps-sd:tail")


def write_report(path: Path, results: Results) -> Path:
    """Write the report of a simulation."""
    facts = results.workload
    page = Page(
        "LAPS-SD simulation",
        f"{facts['trace']}: {facts['n']} requests, {facts['seeds']} seed(s), {facts['slots']} slots",
    )
    page.heading("Policies")
    page.table(*policy_rows(results.policies), caption="Seconds; averages over seeds.")
    page.text(
        "Gap closed is the share of the way from fcfs to the clairvoyant oracle-ride: (fcfs mean − policy mean) / "
        "(fcfs mean − oracle-ride mean). With more than one slot oracle-ride is a reference and no bound."
    )
    page.heading("Where nothing is gained, and what it costs")
    for finding in findings(results):
        page.note(finding)
    page.heading("Latency")
    page.figure(_latency_cdf(results), "Share of requests that are done within so many seconds.")
    page.figure(
        _mean_against_tail(results),
        "Mean against p99 latency: the nearer to the lower left, the better. The line is laps-sd as `tail` grows: "
        "no-boost, the default, and the preset tail; it is drawn with --ablation.",
    )
    if results.sweep:
        page.figure(_against_load(results), "Mean latency at further loads.")
    page.figure(_slowdown(results), "Mean slowdown (latency over service on an idle machine) by output length.")
    page.heading("Queue")
    page.figure(_queue(results), "Waiting requests over time, first seed.")
    page.figure(_preemptions(results), "Preemptions and recomputed tokens, per request.")
    page.figure(_gaps(results), "Gap closed; the dots are the seeds.")
    if results.ablation:
        page.heading("What each part of laps-sd adds")
        page.table(*policy_rows(results.ablation), caption="Presets of laps-sd on the same requests.")
        page.figure(_ablation(results.ablation), "Mean latency of the presets, relative to laps-sd.")
    page.heading("What was replayed")
    page.table(("what", "value"), [(key, _fact(value)) for key, value in facts.items()])
    return page.write(path)


def _fact(value: object) -> str | None:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_fact(v)}" for k, v in value.items() if v is not None)
    return None if value is None else str(value)


def _layout(figure: Figure, x: str, y: str, *, log_x: bool = False, log_y: bool = False) -> Figure:
    figure.update_layout(
        template="plotly_white",
        height=420,
        margin={"l": 60, "r": 20, "t": 20, "b": 50},
        xaxis={"title": x, "type": "log" if log_x else "-"},
        yaxis={"title": y, "type": "log" if log_y else "-"},
    )
    return figure


def _latency_cdf(results: Results) -> Figure:
    figure = Figure()
    for name in results.policies:
        seconds = np.mean([t.latency_quantiles for t in results.trials[name]], axis=0)
        figure.add_trace(Scatter(x=seconds.round(4).tolist(), y=CDF_QUANTILES.tolist(), name=name, mode="lines"))
    return _layout(figure, "latency (s)", "share of requests", log_x=True)


def _mean_against_tail(results: Results) -> Figure:
    figure = Figure()
    ours = [results.ablation[name] for name in TAIL_LINE if name in results.ablation]
    if ours:
        line = Scatter(x=[_mean(s) for s in ours], y=[_p99(s) for s in ours], mode="lines", name="laps-sd, tail grows")
        figure.add_trace(line.update(line={"dash": "dot"}))
    for name, s in {**results.ablation, **results.policies}.items():
        figure.add_trace(Scatter(x=[_mean(s)], y=[_p99(s)], name=name, mode="markers", marker={"size": 9}))
    return _layout(figure, "mean latency (s)", "p99 latency (s)", log_x=True, log_y=True)


def _against_load(results: Results) -> Figure:
    figure = Figure()
    loads = sorted(results.sweep)
    for name in results.policies:
        means = [_mean(results.sweep[load][name]) for load in loads]
        figure.add_trace(Scatter(x=loads, y=means, name=name, mode="lines+markers"))
    return _layout(figure, "load", "mean latency (s)", log_y=True)


def _slowdown(results: Results) -> Figure:
    figure = Figure()
    for name in results.policies:
        parts = mean_slowdowns(results.trials[name])
        labels = [f"{low:.0f}–{high:.0f}" for low, high, _ in parts]
        values = [slowdown for _, _, slowdown in parts]
        figure.add_trace(Scatter(x=labels, y=values, name=name, mode="lines+markers"))
    return _layout(figure, "output tokens", "mean slowdown", log_y=True)


def _queue(results: Results) -> Figure:
    figure = Figure()
    for name in results.policies:
        timeline = results.trials[name][0].timeline
        seconds = [round(s, 3) for s in timeline.seconds]
        figure.add_trace(Scatter(x=seconds, y=timeline.waiting, name=name, mode="lines", line={"shape": "hv"}))
    return _layout(figure, "time (s)", "waiting requests")


def _preemptions(results: Results) -> Figure:
    names, n = list(results.policies), results.workload["n"]
    figure = Figure(Bar(x=names, y=[results.policies[p]["preemptions"] / n for p in names], name="preemptions"))
    recomputed = [results.policies[p]["recomputed_tokens"] / n for p in names]
    figure.add_trace(Bar(x=names, y=recomputed, name="recomputed tokens"))
    return _layout(figure, "", "per request")


def _gaps(results: Results) -> Figure:
    gaps = {name: s["gap_closed"] for name, s in results.policies.items() if s["gap_closed"] is not None}
    figure = Figure(Bar(x=list(gaps), y=list(gaps.values()), showlegend=False))
    for name in gaps:
        seeds = [g for g in results.per_seed(name)["gap_closed"] if g is not None]
        dots = Scatter(x=[name] * len(seeds), y=seeds, mode="markers", marker={"color": "black", "size": 4})
        figure.add_trace(dots.update(showlegend=False))
    return _layout(figure, "", "gap closed")


def _ablation(ablation: Mapping[str, PolicySummary]) -> Figure:
    whole = _mean(ablation["laps-sd"])
    means: Sequence[float | None] = [_mean(s) for s in ablation.values()]
    ratios = [None if m is None or not whole else m / whole for m in means]
    return _layout(Figure(Bar(x=list(ablation), y=ratios)), "", "mean latency / laps-sd")


def _p99(summary: PolicySummary) -> float | None:
    latency = summary["latency_s"]
    return None if latency is None else latency["p99"]


def _mean(summary: PolicySummary) -> float | None:
    latency = summary["latency_s"]
    return None if latency is None else latency["mean"]
