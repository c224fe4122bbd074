"""``laps-sd config``: the file behind ``--laps-sd-config``, and those for Prometheus and Grafana."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the group to the command line."""
    group = typer.Typer(no_args_is_help=True, help="Files for --laps-sd-config, Prometheus and Grafana.")
    group.command("show")(show)
    group.command("alerts")(alerts)
    group.command("dashboard")(dashboard)
    app.add_typer(group, name="config")


def show(
    file: Annotated[
        Path | None, typer.Argument(help="Configuration to check and complete [default: defaults].")
    ] = None,
) -> None:
    """Print every setting with its meaning, as YAML; exit code 2 when FILE has an unknown key or a bad value."""
    from laps_sd.serving.config import as_yaml, load_config

    typer.echo(as_yaml(load_config(file)), nl=False)


def alerts() -> None:
    """Print alert rules for Prometheus, as YAML."""
    typer.echo(_shipped("alerts.yaml"), nl=False)


def dashboard() -> None:
    """Print a dashboard for Grafana, as JSON to import."""
    typer.echo(_shipped("dashboard.json"), nl=False)


def _shipped(name: str) -> str:
    from importlib.resources import files

    return files("laps_sd.serving.monitoring").joinpath(name).read_text(encoding="utf-8")
