"""``laps-sd serve --cpu -- ARGS…``: SGLang's own server on the CPU stand-in."""

import os
import sys
from typing import Annotated

import typer

from laps_sd.errors import InputError

#: SGLang's own.
DEFAULT_PORT = "30000"


def register(app: typer.Typer) -> None:
    """Add the verb ``serve``."""
    app.command("serve", context_settings={"ignore_unknown_options": True})(serve)


def serve(
    args: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- ARGS…", help="SGLang's own arguments; they win over the CPU defaults."),
    ] = None,
    cpu: Annotated[bool, typer.Option("--cpu", help="Serve on the CPU stand-in (required).")] = False,
) -> None:
    """Run SGLang's server on a CPU without AMX.

    Serves the demo model (SmolLM2-135M-Instruct) unless ARGS name one with --model-path, without drafts unless ARGS ask
    for them: `--speculative-algorithm NGRAM --speculative-num-draft-tokens 8`. Becomes SGLang's process:
    its output, its signals, its exit status. On a GPU start SGLang itself: `sglang serve … --schedule-policy laps-sd`.
    """
    from laps_sd.serving.cpu import launch
    from laps_sd.serving.process.server import require_free

    if not cpu:
        raise InputError("serve needs --cpu; on a GPU start SGLang itself: sglang serve … --schedule-policy laps-sd")
    given = args or []
    launch.check(given)
    port = launch.value_of("--port", given) or DEFAULT_PORT
    if port.isdecimal():  # anything else is SGLang's to refuse
        require_free(int(port))
    command = launch.command(launch.with_model(given))
    sys.stdout.flush()
    sys.stderr.flush()
    # Replacing this process is what forwards every signal and the exit status exactly.
    os.execve(command[0], command, launch.environment())  # noqa: S606
