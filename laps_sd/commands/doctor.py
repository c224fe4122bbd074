"""``laps-sd doctor``: says whether a server with laps-sd would start here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("doctor")(doctor)


def doctor(
    args: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- ARGS…", help="SGLang's launch arguments to try without starting."),
    ] = None,
    bundle: Annotated[str | None, typer.Option(help="Bundle folder or MLflow URI to try.")] = None,
    config: Annotated[Path | None, typer.Option(help="File for --laps-sd-config to try.")] = None,
    url: Annotated[str | None, typer.Option(help="A running server: is laps-sd active there?")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the checks to this file.")] = None,
) -> int:
    """Check versions, SGLang's hook targets, the plugin, a bundle; exit code 0 only when all is well.

    Imports SGLang (about ten seconds), starts nothing.
    """
    from rich.console import Console
    from rich.table import Table

    from laps_sd.files import check_writable, write_json
    from laps_sd.serving.doctor import as_json, examine

    if json is not None:
        check_writable(json)
    checks = examine(bundle=bundle, config=config, args=args or (), url=url)
    table = Table()
    for header in ("check", "", "found", "what to do"):
        table.add_column(header, overflow="fold")
    for check in checks:
        table.add_row(check.name, "ok" if check.ok else "NOT OK", check.detail, "" if check.ok else check.fix)
    Console(markup=False).print(table)
    result = as_json(checks)
    if json is not None:
        write_json(json, result)
    return 0 if result["ok"] else 1
