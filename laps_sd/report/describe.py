"""The page of ``laps-sd data describe``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laps_sd.report.page import Page

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from laps_sd.data import RequestRecord

#: Columns of the tables, of the page as of the command line; p10 to p99 are of the output tokens.
HEADERS = ("", "n", "cut", "prompt p50", "p10", "p50", "p90", "p99", "accept length")


def write_report(path: Path, title: str, described: Mapping[str, Any], records: Sequence["RequestRecord"]) -> None:
    """Write the description of a trace as one HTML file.

    Parameters
    ----------
    described
        What :func:`laps_sd.data.describe.describe` returned.
    records
        The records, for the plots.
    """
    page = Page(title, f"{described['n']:,} requests, {described['censored_share']:.1%} censored")
    page.text(
        "Lengths in tokens. Accept length: tokens per verify step, bonus included. p10 to p99 are "
        "of the output. A censored answer was cut by its cap or cancelled: its true length is at least what is shown."
    )
    page.table(HEADERS, [summary_row("all", described)])
    page.figure(_lengths(records), "Output length, ended by the model and cut")
    accepted = [r.accept_length for r in records if r.accept_length is not None]
    if accepted:
        page.figure(_histogram(accepted, "tokens per verify step"), "Accept length of a request")
        page.figure(_length_by_acceptance(records), "Output length and accept length")
    page.figure(_prompt_by_output(records), "Prompt length says little about output length")
    for name in ("source", "category", "draft", "model"):
        parts = described[f"by_{name}"]
        if parts:
            page.heading(f"By {name}")
            page.table(HEADERS, [summary_row(key, part) for key, part in parts.items()])
    page.heading("Prompts")
    prompts = described["prompts"]
    page.table(
        ("", "prompts"),
        [
            ("with text", prompts["n"]),
            ("exact duplicates", prompts["exact_duplicates"]),
            ("same words (case, spacing, punctuation aside)", prompts["same_words"]),
            ("named groups", prompts["groups"]),
        ],
    )
    page.heading("Fields")
    page.table(("field", "known in"), list(described["fields"].items()))
    page.write(path)


def summary_row(name: str, part: Mapping[str, Any]) -> tuple[object, ...]:
    """Return one line of the tables: counts, censoring and the quantiles that matter."""
    output, prompt, accept = part["output_tokens"], part["prompt_tokens"], part["accept_length"]
    return (
        name,
        f"{part['n']:,}",
        f"{part['censored_share']:.1%}",
        f"{prompt['p50']:.0f}" if prompt else None,
        *(f"{output[q]:.0f}" for q in ("p10", "p50", "p90", "p99")),
        f"{accept['mean']:.2f}" if accept else None,
    )


def _lengths(records: Sequence["RequestRecord"]) -> "Figure":
    import plotly.graph_objects as go

    figure = go.Figure(layout={"barmode": "stack", "xaxis_title": "output tokens", "yaxis_title": "requests"})
    for name, censored in (("ended", False), ("cut", True)):
        values = [r.output_tokens for r in records if r.censored is censored]
        if values:
            figure.add_histogram(x=values, name=name, nbinsx=60)
    return figure


def _histogram(values: Sequence[float], title: str) -> "Figure":
    import plotly.graph_objects as go

    figure = go.Figure(layout={"xaxis_title": title, "yaxis_title": "requests"})
    return figure.add_histogram(x=list(values), nbinsx=40)


def _length_by_acceptance(records: Sequence["RequestRecord"]) -> "Figure":
    known = [r for r in records if r.accept_length is not None]
    return _scatter(
        [r.output_tokens for r in known],
        [r.accept_length or 0.0 for r in known],
        "output tokens",
        "tokens per verify step",
        [r.category or r.source or "" for r in known],
    )


def _prompt_by_output(records: Sequence["RequestRecord"]) -> "Figure":
    return _scatter(
        [r.prompt_tokens for r in records],
        [r.output_tokens for r in records],
        "prompt tokens",
        "output tokens",
        [r.category or r.source or "" for r in records],
    )


def _scatter(x: Sequence[float], y: Sequence[float], x_title: str, y_title: str, names: Sequence[str]) -> "Figure":
    import plotly.graph_objects as go

    figure = go.Figure(layout={"xaxis_title": x_title, "yaxis_title": y_title, "xaxis_type": "log"})
    return figure.add_scattergl(
        x=list(x), y=list(y), text=list(names), mode="markers", marker={"size": 5, "opacity": 0.5}
    )
