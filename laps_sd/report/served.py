"""Pictures of what really ran: who waited, ran and was preempted when, the queue over time, and all latencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

#: One colour per policy, readable for the colour-blind.
COLOURS = ("#7f8ea3", "#1f5fbf", "#d1742a", "#3a8f5c", "#8a4fbf", "#b03a4a", "#2b9ab0", "#a08a2a")
#: What a request does at a time, and how that is drawn.
PHASES = {"waiting": ("#c9d1dc", 2), "running": ("#1f5fbf", 6), "preempted": ("#d1742a", 2)}
#: Requests that a Gantt picture shows of each policy; more are too thin to see.
MOST_ROWS = 80

#: One line of ``requests.jsonl``.
Row = Mapping[str, Any]


def phases_of(rounds: Mapping[str, Any]) -> dict[str, list[tuple[int, int]]]:
    """Return when a request waited, ran and was preempted, in rounds: its time from arrival to end, without gaps."""
    spans = [(int(begin), int(end)) for begin, end in rounds["spans"]]
    if not spans:
        return {"waiting": [(rounds["arrival"], rounds["end"])], "running": [], "preempted": []}
    between = [(before[1], after[0]) for before, after in pairwise(spans)]
    return {"waiting": [(rounds["arrival"], spans[0][0])], "running": spans, "preempted": between}


def gantt(rows: Sequence[Row]) -> Figure:
    """Draw every request's life under each policy, in rounds from the first arrival, in the order of arrival."""
    from plotly.graph_objects import Scatter
    from plotly.subplots import make_subplots

    lives = lives_of(rows)
    figure = make_subplots(len(lives), 1, shared_xaxes=True, subplot_titles=list(lives), vertical_spacing=0.06)
    for place, life in enumerate(lives.values(), start=1):
        start = min(rounds["arrival"] for rounds in life)
        for phase, (colour, width) in PHASES.items():
            x: list[float | None] = []
            y: list[float | None] = []
            for row, rounds in enumerate(life):
                for begin, end in phases_of(rounds)[phase]:
                    x += [begin - start, end - start, None]
                    y += [row, row, None]
            line = {"color": colour, "width": width}
            trace = Scatter(x=x, y=y, name=phase, mode="lines", line=line, legendgroup=phase, showlegend=place == 1)
            figure.add_trace(trace, row=place, col=1)
        figure.update_yaxes(title_text="request", autorange="reversed", row=place, col=1)
    figure.update_xaxes(title_text="rounds of the scheduler", row=len(lives), col=1)
    figure.update_layout(template="plotly_white", height=120 + 260 * len(lives), margin={"t": 60})
    return figure


def lives_of(rows: Sequence[Row]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the rounds of the requests of each policy's first turn, in the order of arrival."""
    lives: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        counted = (row["laps_sd"] or {}).get("rounds")
        if row["round"] == 0 and counted is not None and row["finish_s"] is not None:
            lives.setdefault(row["policy"], []).append({**counted, "sent": row["arrival_s"]})
    return {name: sorted(life, key=lambda r: (r["arrival"], r["sent"]))[:MOST_ROWS] for name, life in lives.items()}


def queue_over_time(queues: Mapping[str, Sequence[tuple[int, int]]]) -> Figure:
    """Draw how many requests waited; ``queues`` has (round, waiting) of each policy."""
    from plotly.graph_objects import Figure, Scatter

    figure = Figure()
    for colour, (policy, queue) in zip(COLOURS, queues.items(), strict=False):
        every = max(len(queue) // 1000, 1)
        kept = queue[::every]
        x, y = [point[0] - queue[0][0] for point in kept], [point[1] for point in kept]
        figure.add_trace(Scatter(x=x, y=y, name=policy, line={"color": colour, "shape": "hv"}))
    return _titled(figure, "rounds of the scheduler", "requests waiting")


def latency_distribution(rows: Sequence[Row]) -> Figure:
    """Draw the share of requests that had ended after a time, by policy."""
    from plotly.graph_objects import Figure, Scatter

    latencies: dict[str, list[float]] = {}
    for row in rows:
        if row["finish_s"] is not None:
            latencies.setdefault(row["policy"], []).append(row["finish_s"] - row["arrival_s"])
    figure = Figure()
    for colour, (policy, values) in zip(COLOURS, latencies.items(), strict=False):
        shares = [(place + 1) / len(values) for place in range(len(values))]
        figure.add_trace(Scatter(x=sorted(values), y=shares, name=policy, line={"color": colour, "shape": "hv"}))
    return _titled(figure, "latency (seconds)", "share of requests finished")


def _titled(figure: Figure, x: str, y: str) -> Figure:
    figure.update_layout(
        template="plotly_white", xaxis_title=x, yaxis_title=y, height=400, margin={"t": 20, "l": 60, "r": 20, "b": 50},
        legend={"orientation": "h", "y": 1.08},
    )  # fmt: skip
    return figure
