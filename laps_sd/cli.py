"""The command line: registers the verbs, and turns every failure into one sentence and an exit code."""

import os
import sys
import traceback
from importlib import import_module
from typing import Annotated

import typer

from laps_sd import __version__
from laps_sd.errors import LapsError, not_installed

app = typer.Typer(
    name="laps-sd",
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Request scheduling for SGLang with speculative decoding (LAPS-SD, arXiv 2505.17074).",
)

#: What a wrong option or argument raises. Typer carries its own copy of click from 0.21 on and exports only this leaf.
_UsageError: type[typer.BadParameter] = typer.BadParameter.__bases__[0]

_INTERRUPTED, _STOPPED = 130, "interrupted; what was started has been stopped"

#: Module of ``laps_sd.commands`` that registers each verb, in the order that ``--help`` shows.
VERBS = (
    "demo",
    "import_",
    "data",
    "collect",
    "train",
    "evaluate",
    "promote",
    "predict",
    "simulate",
    "bench",
    "serve",
    "config",
    "doctor",
    "top",
    "explain",
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"laps-sd {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of a failure.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="No progress and no remarks: results, and what went wrong.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    # Through the environment, so that worker processes of the command see it too.
    if debug:
        os.environ["LAPS_SD_DEBUG"] = "1"
    if quiet:
        from laps_sd.commands._console import stderr

        stderr.quiet = True
        context.call_on_close(lambda: setattr(stderr, "quiet", False))


for _verb in VERBS:
    import_module(f"laps_sd.commands.{_verb}").register(app)


def fail(message: str, code: int) -> int:
    """Print one sentence to standard error and return the exit code."""
    print(f"laps-sd: {message}", file=sys.stderr)
    return code


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with 0 (done), 1 (the work failed) or 2 (wrong usage or unreadable input)."""
    sys.exit(run(argv))


def run(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    if not (sys.argv[1:] if argv is None else argv):
        argv = ["--help"]
    try:
        result = app(args=argv, standalone_mode=False)
        if result == _INTERRUPTED:  # Typer's way to say it from 0.21 on
            return fail(_STOPPED, _INTERRUPTED)
        return result if isinstance(result, int) else 0
    except LapsError as error:
        _trace()
        return fail(str(error), error.exit_code)
    except _UsageError as error:
        return fail(f"{error.format_message().rstrip('.')} (--help lists what there is)", 2)
    except (typer.Abort, KeyboardInterrupt):
        return fail(_STOPPED, _INTERRUPTED)
    except BrokenPipeError:
        # The reader (head, less) went away: not a failure of ours, and Python must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ModuleNotFoundError as error:
        _trace()
        return fail(str(not_installed(error)), 1)
    except OSError as error:
        _trace()
        where = f"{error.filename}: " if error.filename else ""
        return fail(f"{where}{error.strerror or error}", 1)
    except Exception as error:  # the last resort of a command line: no traceback unless asked for
        _trace()
        return fail(f"unexpected {type(error).__name__}: {error} (run again with --debug and report it)", 1)


def _trace() -> None:
    if os.environ.get("LAPS_SD_DEBUG"):
        traceback.print_exc()
