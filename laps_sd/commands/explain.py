"""``laps-sd explain``: why one recorded request waited or ran when it did."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("explain")(explain)


def explain(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="What the server recorded (record.path).")],
    request_id: Annotated[str, typer.Argument(metavar="REQUEST_ID", help="Whom to explain.")],
    json: Annotated[Path | None, typer.Option(help="Write what was found to this file.")] = None,
) -> None:
    """Say in plain words why a request waited: who held the slots, who went before it, each preemption.

    Times are seconds, lengths tokens. Example: laps-sd explain traces/live.jsonl 5f3a
    """
    from laps_sd.data import iter_records
    from laps_sd.files import check_writable, write_json
    from laps_sd.serving.monitoring.explain import explain as find_out
    from laps_sd.serving.monitoring.explain import sentences

    if json is not None:
        check_writable(json)
    found = find_out(iter_records(trace), request_id)
    for line in sentences(found):
        typer.echo(line)
    if json is not None:
        write_json(json, found.to_json())
