"""Policies side by side: the table that ``simulate``, ``bench`` and ``demo`` print and put into their reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table


def policy_table(policies: Mapping[str, Mapping[str, Any]], title: str = "") -> Table:
    """Return the comparison that people read, for a terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    headers, rows = policy_rows(policies)
    table = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=0)
    table.add_column(headers[0], no_wrap=True)
    for name in headers[1:]:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def policy_rows(policies: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return (headers, rows) of the comparison, one row per policy; times are seconds.

    A column that tells nothing is left out, so that the table fits a terminal of 80 columns.
    """
    fcfs = _at(policies.get("fcfs", {}), "latency_s", "mean")
    columns: dict[str, list[str]] = {"policy": list(policies)}
    for header, value in _COLUMNS.items():
        values = [value(figures) for figures in policies.values()]
        if any(v is not None for v in values) and (header != "failed" or any(values)):
            columns[header] = [_number(v) for v in values]
        if header == "mean s" and fcfs:
            columns["/ fcfs"] = [_number(None if v is None else v / fcfs) for v in values]
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)]


def ratio_table(ratios: Mapping[str, Any], title: str = "") -> Table:
    """Return every policy over the first one, and the last one over every other, for a terminal."""
    return text_table(*ratio_rows(ratios), title)


def text_table(headers: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> Table:
    """Return a table for a terminal: two columns of words, the others of numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for place, name in enumerate(headers):
        table.add_column(name, justify="right" if place > 1 else "left", no_wrap=place < 2)
    for row in rows:
        table.add_row(*row)
    return table


def ratio_rows(ratios: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return (headers, rows) of the ratios: each policy over the first one, and the last one over every other."""
    names = list(ratios)
    pairs = [(name, names[0]) for name in names[1:]] + [(names[-1], name) for name in names[1:-1]]
    rows = []
    for ours, theirs in pairs:
        for measure, unit in (("latency_rounds", "rounds"), ("latency_s", "s")):
            found = ratios[ours].get(theirs, {}).get(measure)
            if found is not None:
                rows.append([f"{ours} / {theirs}", unit, *(_interval(found[key]) for key in _STATISTICS)])
    return ["latency of", "in", *_STATISTICS], rows


def step_rows(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return (headers, rows) of what each policy costs the server, over the first policy."""
    first = next(iter(result["policies"]))
    rows = [
        [f"{policy} / {first}", "", *(_NOTHING if found[key] is None else _interval(found[key]) for key in _STEPS)]
        for policy, found in result["steps"].items()
        if found is not None
    ]
    return ["of", "", *_STEPS.values()], rows


_STEPS = {"step_s": "step, seconds", "step_cpu_s": "step, processor", "steps_per_s": "steps a second"}


def simulated_rows(simulated: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return (headers, rows) of the simulator against reality: the ratios first, then every figure."""
    rows = [
        [row["policy"], row["unit"], row["statistic"], _number(row["measured"]), _number(row["simulated"]),
         f"{row['error']:+.1%}"]
        for row in (*simulated["ratios"], *simulated["figures"])
    ]  # fmt: skip
    return ["latency of", "in", "", "measured", "simulated", "error"], rows


_STATISTICS = ("mean", "p50", "p99")


def _interval(figures: Mapping[str, float]) -> str:
    return f"{figures['ratio']:.3f} ({figures['low']:.3f}–{figures['high']:.3f})"


_NOTHING = "–"
_COLUMNS: dict[str, Callable[[Mapping[str, Any]], float | None]] = {
    "mean s": lambda f: _at(f, "latency_s", "mean"),
    "rounds": lambda f: _at(f, "latency_rounds", "mean"),
    "p50": lambda f: _at(f, "latency_s", "p50"),
    "p99": lambda f: _at(f, "latency_s", "p99"),
    "TTFT": lambda f: _at(f, "ttft_s", "mean"),
    "slowdown": lambda f: f.get("slowdown_mean"),
    "gap": lambda f: f.get("gap_closed"),
    "accept": lambda f: f.get("accept_length_mean"),
    "preempts": lambda f: f.get("preemptions"),
    "recomp": lambda f: f.get("recomputed_tokens"),
    "failed": lambda f: f.get("failed"),
}


def _at(figures: Mapping[str, Any], part: str, key: str) -> float | None:
    spread = figures.get(part)  # of a simulation there are no rounds
    return None if spread is None else spread[key]


def _number(value: float | None) -> str:
    if value is None:
        return _NOTHING
    whole = abs(value) >= 1000 or float(value).is_integer()
    return f"{value:,.0f}" if whole else f"{value:.3g}"
