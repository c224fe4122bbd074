"""Entry point ``sglang.srt.plugins``: what SGLang calls in every one of its processes.

Without the flag two hooks on the argument parser are all there is, and nothing else of ours is imported. With it the
launcher checks everything, refuses in one sentence what cannot work, and sets an environment variable; only processes
that inherit it register the rest. What fails in a child is caught by SGLang itself: it does not know the policy's name.
"""

import multiprocessing
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable

from laps_sd.serving.flags import ACTIVE_ENV, DISABLE_ENV, POLICY, add_flags, flags_alone
from laps_sd.serving.termination.refuse import refuse


def activate() -> None:
    """Register hooks for this process; called by SGLang before it parses arguments or starts a scheduler."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    # Written out, not taken from the table: its module and ours behind it are not to be imported without the flag.
    server_args = "sglang.srt.server_args.ServerArgs."
    HookRegistry.register(server_args + "add_cli_args", add_cli_args, HookType.AFTER)
    HookRegistry.register(server_args + "from_cli_args", from_cli_args, HookType.AROUND)
    # Of the children only those that schedule need more: a detokenizer would pay seconds and memory for nothing.
    is_child = multiprocessing.parent_process() is not None
    if is_child and ACTIVE_ENV in os.environ and "sglang.srt.managers.scheduler" in sys.modules:
        from laps_sd.serving.hooks.scheduler import HOOKS

        HOOKS.register()


def add_cli_args(_result: object, parser: ArgumentParser) -> None:
    """Run after ``ServerArgs.add_cli_args``."""
    add_flags(parser)


def from_cli_args(original: Callable[..., object], cls: type, args: Namespace) -> object:
    """Wrap ``ServerArgs.from_cli_args``: decide whether laps-sd is active in this server."""
    os.environ.pop(ACTIVE_ENV, None)  # of a server that started this one, if any
    if os.environ.get(DISABLE_ENV) == "1":
        if args.schedule_policy == POLICY:
            print(f"laps-sd: {DISABLE_ENV}=1, scheduling with fcfs", file=sys.stderr)
            args.schedule_policy = "fcfs"
    elif (sentence := flags_alone(args)) is not None:
        refuse(sentence)
    elif args.schedule_policy == POLICY:
        go_active(args)
    return original(cls, args)


def go_active(args: Namespace) -> None:
    """Check everything, hook the tokenizer side of this process, and hand the options to its children."""
    from laps_sd.errors import LapsError
    from laps_sd.serving.hooks.tokenizer import HOOKS
    from laps_sd.serving.launch import read_launch
    from laps_sd.serving.preflight import check_sglang, refusal

    if (sentence := refusal(args)) is not None:
        refuse(sentence)
    try:
        launch = read_launch(args)
        check_sglang(allow_untested=launch.config.allow_untested_sglang)
        launch = HOOKS.install(launch, args)
    except LapsError as error:
        refuse(str(error))
    except Exception as error:  # whatever it is, serving on without us is worse
        refuse(f"cannot start ({type(error).__name__}: {error}); start with {DISABLE_ENV}=1 to serve without it")
    launch.to_environment()
