"""What ``train``, ``evaluate`` and ``predict`` share: their options, and figures as tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laps_sd.extensions import ACCEPTANCE_PREDICTORS, FEATURES, PREDICTORS, Registry

if TYPE_CHECKING:
    from rich.table import Table


def _known(meaning: str, table: Registry) -> str:
    """Return the help of an option that takes a registered name."""
    return f"{meaning} One of {', '.join(table.names())}."


Data = Annotated[
    list[Path],
    typer.Option("--data", metavar="TRACE", help="Request records, Parquet or JSON lines; more may follow, or repeat."),
]
MoreData = Annotated[list[Path] | None, typer.Argument(metavar="[TRACE…]", help="More traces.")]
Features = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help=_known(
            "Feature set. lexical: microseconds a prompt; embedding: a text encoder, milliseconds, more exact.",
            FEATURES,
        ),
    ),
]
Predictor = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help=_known("Length predictor. hazard: boosted trees; transformer: a fine-tuned encoder.", PREDICTORS),
    ),
]
Acceptance = Annotated[
    str,
    typer.Option(
        metavar="NAME", help=_known("Acceptance predictor. run_mean: one mean for every prompt.", ACCEPTANCE_PREDICTORS)
    ),
]
Encoder = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="Hugging Face text encoder for embedding and transformer. [default: MiniLM]"),
]
Experiment = Annotated[str, typer.Option(help="MLflow experiment; the store is MLFLOW_TRACKING_URI or ./mlflow.db.")]

_LENGTH = {
    "kendall_tau": "τ",
    "spearman": "Spearman",
    "c_index": "C-index",
    "mae_tokens": "MAE",
    "median_relative_error": "rel. error",
    "coverage_80": "in 80 %",
    "width_80_tokens": "width",
}


def length_table(figures: Mapping[str, Any], title: str) -> Table:
    """Return predictor and baselines side by side, one row each: Kendall τ, errors in tokens, the 80 % interval."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("output length")
    for header in _LENGTH.values():
        table.add_column(header, justify="right")
    others = {name: part and part["length"] for name, part in (figures["baselines"] or {}).items()}
    for name, part in {"predicted": figures["length"], **others}.items():
        if part is not None:
            table.add_row(name.replace("_", " "), *(number(part.get(key)) for key in _LENGTH))
    return table


def acceptance_table(figures: Mapping[str, Any]) -> Table | None:
    """Return the error of the accept length after some verify steps, or None without acceptance data."""
    from rich.table import Table

    acceptance = figures["acceptance"]
    if not acceptance:
        return None
    kinds = {
        "mape_accept_length": "seeded from the prompt",
        "mape_accept_length_unseeded": "no prompt prior",
        "mape_accept_length_raw": "running mean alone",
    }
    table = Table(title="error of tokens per verify step, by steps seen", title_justify="left")
    table.add_column("")
    steps = list(acceptance["mape_accept_length"])
    for step in steps:
        table.add_column(str(step), justify="right")
    for key, name in kinds.items():
        values = acceptance.get(key) or {}
        table.add_row(name, *(percent(values.get(step)) for step in steps))
    return table


def execution_table(figures: Mapping[str, Any]) -> Table | None:
    """Return the error of the remaining verify steps, beside the paper's 6.84 %, or None without data."""
    from rich.table import Table

    execution = figures["execution_time"]
    if not execution:
        return None
    parts = {name: values for name, values in execution.items() if isinstance(values, Mapping)}
    steps = list(next(iter(parts.values()), {}))
    table = Table(title="execution time by steps seen (the paper: 6.84 % overall)", title_justify="left")
    table.add_column("")
    for step in steps:
        table.add_column(str(step), justify="right")
    for name, values in parts.items():
        show = number if name.startswith("n_") else percent
        table.add_row(name.replace("_", " "), *(show(values.get(step)) for step in steps))
    return table


def refinement_table(figures: Mapping[str, Any]) -> Table | None:
    """Return what is known of the rest after so many tokens, as at arrival and refined, or None without counts."""
    from rich.table import Table

    refinement = figures.get("refinement")
    if not refinement:
        return None
    kinds = {
        "kendall_tau": ("τ of the tokens left", number),
        "log_error_sd": ("σ of the log length", number),
        "coverage_80": ("in 80 %", percent),
        "mae_left_tokens": ("error of the tokens left", number),
    }
    checkpoints = list(refinement["n_running"])
    table = Table(title="length once the answer runs, by tokens so far: at arrival → refined", title_justify="left")
    table.add_column("")
    for checkpoint in checkpoints:
        table.add_column(checkpoint, justify="right")
    table.add_row("requests", *(number(refinement["n_running"][c]) for c in checkpoints))
    for key, (name, show) in kinds.items():
        arrival, refined = refinement[f"{key}_arrival"], refinement[f"{key}_refined"]
        table.add_row(name, *(f"{show(arrival[c])} → {show(refined[c])}" for c in checkpoints))
    return table


def number(value: float | None) -> str:
    """Return a figure for people; a dash where there is none."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percent(value: float | None) -> str:
    """Return a share as a percentage; a dash where there is none."""
    return "–" if value is None else f"{100 * value:.1f} %"
