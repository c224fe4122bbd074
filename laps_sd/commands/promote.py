"""``laps-sd promote``: let servers follow a version of a registered model, or take that back."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the verb ``promote``."""
    app.command("promote")(promote)


def promote(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Registered model.")],
    version: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Version to promote. [default: the newest]")
    ] = None,
    alias: Annotated[str, typer.Option(help="Alias that servers follow: models:/NAME@ALIAS.")] = "champion",
    back: Annotated[bool, typer.Option("--back", help="Return to the version that the alias named before.")] = False,
) -> None:
    """Move the alias of a registered model to a version, or back to the one before.

    Servers read the bundle when they start: restart them to serve it. The store is MLFLOW_TRACKING_URI or ./mlflow.db.
    """
    from laps_sd.errors import InputError
    from laps_sd.training.registry import promote as to_version
    from laps_sd.training.registry import roll_back
    from laps_sd.training.signals import orderly

    if back and version is not None:
        raise InputError("--back returns to the version before; leave out --version")
    with orderly():
        moved = roll_back(name, alias) if back else to_version(name, alias, None if version is None else str(version))
    typer.echo(str(moved))
