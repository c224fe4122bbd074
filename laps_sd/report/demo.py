"""The page at the end of ``laps-sd demo``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plotly.graph_objects import Bar, Figure, Scatter

from laps_sd.report.page import Page
from laps_sd.report.served import COLOURS, Row, gantt

#: (headers, rows) of the comparison as text.
Rows = tuple[list[str], list[list[str]]]
#: Latency and output tokens of every request, by policy.
Requests = Mapping[str, Sequence[Mapping[str, Any]]]


def demo_report(figures: Mapping[str, Any], rows: Rows, requests: Requests, served: Sequence[Row] = ()) -> Page:
    """Return the page.

    Parameters
    ----------
    figures : mapping
        What :func:`laps_sd.demo.run_demo` returns.
    rows : (headers, rows)
        The comparison as text.
    requests : mapping
        What :func:`laps_sd.demo.bench_requests` returns.
    served : sequence of mapping, optional
        The lines of the comparison's ``requests.jsonl``, for the picture of who ran when.
    """
    page = Page("LAPS-SD demo", "One burst of requests through a real SGLang server, under fcfs and under laps-sd")
    _comparison(page, figures, rows, requests)
    if any((row["laps_sd"] or {}).get("rounds") for row in served):
        caption = (
            "Each request waiting, holding a slot, preempted. A round is a prefill or one decode step of all that run."
        )
        page.figure(gantt(served), caption)
    _accuracy(page, figures["evaluation"])
    page.heading("Where the models are")
    page.text(f"MLflow run {figures['run_id']} in experiment {figures['experiment']}. To look at it:")
    page.code(f"mlflow ui --backend-store-uri {figures['tracking_uri']}")
    page.text("To serve with these models on this machine:")
    page.code(figures["serve"])
    return page


def _comparison(page: Page, figures: Mapping[str, Any], rows: Rows, requests: Requests) -> None:
    workload = figures["workload"]
    page.heading("Latency")
    page.table(*rows, caption=f"{workload['n']} requests at once, {workload['slots']} run at a time. Seconds.")
    same = figures["identical_tokens"]
    page.text(
        "Greedy decoding gave identical tokens under both policies: the order changed, the answers did not."
        if same
        else "The generated tokens differ between the policies; see the per-request files in the bench folder."
    )
    page.figure(_latency_cdf(requests), "Share of requests that had finished after a time. Further left is better.")
    page.figure(_by_length(requests), "Latency of each request against the length of its answer.")
    page.note(
        "A small model on a CPU: the ratios tell, not the seconds. With one burst and few slots the gain comes from "
        "short answers no longer waiting behind long ones, and long ones wait for it: compare p99. Speculation itself "
        "is slower than plain decoding on a CPU."
    )


def _latency_cdf(requests: Requests) -> Figure:
    figure = Figure()
    for colour, (policy, rows) in zip(COLOURS, requests.items(), strict=False):
        latencies = sorted(row["latency_s"] for row in rows if row["latency_s"] is not None)
        shares = [(place + 1) / len(latencies) for place in range(len(latencies))]
        figure.add_trace(Scatter(x=latencies, y=shares, name=policy, line={"color": colour, "shape": "hv"}))
    return _titled(figure, "latency (seconds)", "share of requests finished")


def _by_length(requests: Requests) -> Figure:
    figure = Figure()
    for colour, (policy, rows) in zip(COLOURS, requests.items(), strict=False):
        done = [row for row in rows if row["latency_s"] is not None]
        x, y = [row["output_tokens"] for row in done], [row["latency_s"] for row in done]
        figure.add_trace(Scatter(x=x, y=y, name=policy, mode="markers", marker={"color": colour, "size": 9}))
    return _titled(figure, "output tokens", "latency (seconds)")


def _accuracy(page: Page, evaluation: Mapping[str, Any]) -> None:
    length, acceptance = evaluation["length"], evaluation["acceptance"]
    page.heading("How good the predictions were")
    page.text(f"On {evaluation['n']} held-out requests, {evaluation['n_censored']} of them cut by their limit.")
    baselines = {name: values.get("length") for name, values in (evaluation["baselines"] or {}).items()}
    wanted = ("kendall_tau", "c_index", "integrated_brier", "mae_tokens", "coverage_80")
    measures = [key for key in wanted if length and length.get(key) is not None]
    rows = [[name.replace("_", " "), *(_cell(values, key) for key in measures)]
            for name, values in {"predicted from the prompt": length, **baselines}.items()]  # fmt: skip
    page.table(["output length", *(key.replace("_", " ") for key in measures)], rows, caption=_MEASURES)
    if acceptance and acceptance["mape_accept_length"]:
        page.figure(_acceptance(acceptance), "Error of the predicted tokens per verify step of the rest of a request.")


_MEASURES = (
    "The C-index (1 is a perfect order, 0.5 none) and the Brier score (0 is perfect) count cut requests too. The error "
    "in tokens is over the requests that ended by themselves, which are the shorter ones: it favours predictions that "
    "are too short, and so do baselines that know nothing of the cut ones."
)


def _acceptance(acceptance: Mapping[str, Any]) -> Figure:
    figure = Figure()
    kinds = {
        "running mean alone": "mape_accept_length_raw",
        "without the prompt": "mape_accept_length_unseeded",
        "seeded from the prompt": "mape_accept_length",
    }
    for colour, (name, key) in zip(("#c9d1dc", "#7f8ea3", "#1f5fbf"), kinds.items(), strict=True):
        known = {step: error for step, error in (acceptance[key] or {}).items() if error is not None}
        figure.add_trace(Bar(x=list(known), y=list(known.values()), name=name, marker={"color": colour}))
    figure.update_yaxes(tickformat=".0%")
    return _titled(figure, "verify steps seen", "mean absolute percentage error")


def _cell(values: Mapping[str, Any] | None, key: str) -> str | None:
    value = None if values is None else values.get(key)
    return None if value is None else f"{value:.3g}"


def _titled(figure: Figure, x: str, y: str) -> Figure:
    figure.update_layout(
        template="plotly_white", xaxis_title=x, yaxis_title=y, height=400, margin={"t": 20, "l": 60, "r": 20, "b": 50},
        legend={"orientation": "h", "y": 1.08},
    )  # fmt: skip
    return figure
