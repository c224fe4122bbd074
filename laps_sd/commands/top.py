"""``laps-sd top``: what a running server does right now."""

from __future__ import annotations

import json as json_module
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Group


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("top")(top)


def top(
    url: Annotated[str, typer.Argument(metavar="URL", help="A running server, such as http://127.0.0.1:30000.")],
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a look, a line each.")] = False,
    api_key: Annotated[
        str | None, typer.Option(envvar="LAPS_SD_API_KEY", help="For a server started with --api-key.")
    ] = None,
) -> None:
    """Show the queue, trust, preemptions and predicted backlog of a server that laps-sd ranks in.

    Reads /server_info and /metrics (--enable-metrics). Example: laps-sd top http://127.0.0.1:30000 --once --json
    """
    from rich.console import Console
    from rich.live import Live

    from laps_sd.serving.monitoring.live import look

    if json:
        typer.echo(json_module.dumps(look(url, api_key)))
        while not once:
            time.sleep(interval)
            typer.echo(json_module.dumps(look(url, api_key)))
        return
    console = Console()
    if once:
        console.print(page(look(url, api_key)))
        return
    with Live(page(look(url, api_key)), console=console, screen=console.is_terminal, auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            live.update(page(look(url, api_key)), refresh=True)


def page(now: Mapping[str, Any]) -> Group:  # Any: JSON
    """Return what `look` found as lines and a table for a terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    queue = Table(title="requests by queue level", title_justify="left")
    for header in ("level", "waiting", "running"):
        queue.add_column(header, justify="right")
    levels = now["levels"]
    for level in sorted({*levels["waiting"], *levels["running"]}, key=int):
        queue.add_row(level, str(levels["waiting"].get(level, 0)), str(levels["running"].get(level, 0)))
    return Group(Text("\n".join(_lines(now))), queue if queue.row_count else Text("nobody waits, nobody runs"))


def _lines(now: Mapping[str, Any]) -> Iterator[str]:
    served = now["served"]
    bundle = served.get("bundle") or "no bundle"
    version = f" version {served['version']}" if served.get("version") else ""
    yield f"{now['url']}: {served['policy']}, {bundle}{version}"
    if now["failed_hook"] is not None or not now["active"]:
        yield f"NOT ACTIVE: the hook {now['failed_hook']} failed, the server schedules with fcfs"
    yield f"waiting {now['waiting']}, running {now['running']}"
    for phase, left in now["backlog"].items():
        yield (
            f"left of the {phase}: {_number(left['tokens'])} tokens, {_number(left['steps'])} steps, "
            f"{_number(left['seconds'])} s (predicted)"
        )
    gain = now["order_gain"]
    yield (
        f"the order saves each waiting request {_number(gain['steps'])} steps, {_number(gain['seconds'])} s on average "
        "(against first come, first served; predicted)"
    )
    yield (
        f"trust {_number(now['trust'])}, error of ln(length) {_number(now['length_log_error'])}, of accept length "
        f"{_number(now['accept_length_relative_error'])}, acceptance known of {_number(now['perceptible_share'])}"
    )
    yield (
        f"preemptions {_counts(now['preemptions'])}, recomputed tokens {now['recomputed_tokens']}, "
        f"refinements {now['refinements']}"
    )
    yield (
        f"predicted {now['predicted']}, unpredicted {_counts(now['unpredicted'])}, rejected hints "
        f"{_counts(now['rejected_hints'])}, missing in the record {now['unrecorded']}"
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _counts(by_label: Mapping[str, int]) -> str:
    return ", ".join(f"{count} ({label})" for label, count in by_label.items()) or "0"
