"""``laps-sd config``: the file behind ``--laps-sd-config``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the group to the command line."""
    group = typer.Typer(no_args_is_help=True, help="The file for the launch flag --laps-sd-config.")
    group.command("show")(show)
    group.callback()(_group)
    app.add_typer(group, name="config")


def _group() -> None:
    """Keep `show` a verb of its own: a group of one command would swallow its name."""


def show(
    file: Annotated[
        Path | None, typer.Argument(help="Configuration to check and complete [default: defaults].")
    ] = None,
) -> None:
    """Print every setting with its meaning, as YAML; exit code 2 when FILE has an unknown key or a bad value."""
    from laps_sd.serving.config import as_yaml, load_config

    typer.echo(as_yaml(load_config(file)), nl=False)
