"""Entry point ``sglang.srt.plugins``: what SGLang calls in every one of its processes.

Without the flag four hooks are all there is, on the argument parser and where a launcher resolves and publishes its
options, and nothing else of ours is imported. With it the launcher checks everything, refuses in one sentence what
cannot work, and sets an environment variable; only processes that inherit it register the rest. What fails in a child
is caught by SGLang itself: it does not know the policy's name.
"""

import multiprocessing
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Protocol

from laps_sd.serving.flags import (
    ACTIVE_ENV,
    BUNDLE_ENV,
    CONFIG_ENV,
    DISABLE_ENV,
    POLICY,
    ROUNDS_ENV,
    Default,
    add_flags,
    flags_alone,
)
from laps_sd.serving.termination.refuse import refuse


class Options(Protocol):
    """What we use of ``sglang.srt.server_args.ServerArgs``; here, because `engine` is not imported without the flag."""

    schedule_policy: str
    __struct_fields__: tuple[str, ...]


#: Whether the command line of this process said that laps-sd ranks, and the options that were decided about last.
_by_command_line = False
_decided: object = None


def activate() -> None:
    """Register hooks for this process; called by SGLang before it parses arguments or starts a scheduler."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    # Written out, not taken from the table: its module and ours behind it are not to be imported without the flag.
    server_args = "sglang.srt.server_args.ServerArgs."
    HookRegistry.register(server_args + "add_cli_args", add_cli_args, HookType.AFTER)
    HookRegistry.register(server_args + "from_cli_args", from_cli_args, HookType.AROUND)
    HookRegistry.register(server_args + "resolve_once", resolve_once, HookType.AROUND)
    HookRegistry.register("sglang.srt.runtime_context.publish", publish, HookType.AROUND)
    # Of the children only those that schedule need more: a detokenizer would pay seconds and memory for nothing.
    if multiprocessing.parent_process() is None or "sglang.srt.managers.scheduler" not in sys.modules:
        return
    if ACTIVE_ENV in os.environ:
        from laps_sd.serving.hooks.scheduler import HOOKS

        HOOKS.register()
    if os.environ.get(ROUNDS_ENV):
        from laps_sd.serving.hooks.rounds import HOOKS as ROUND_HOOKS

        ROUND_HOOKS.register()


def add_cli_args(_result: object, parser: ArgumentParser) -> None:
    """Run after ``ServerArgs.add_cli_args``."""
    add_flags(parser)


def from_cli_args(original: Callable[..., object], cls: type, args: Namespace) -> object:
    """Wrap ``ServerArgs.from_cli_args``: decide whether laps-sd is active in this server."""
    global _by_command_line
    forget()
    if os.environ.get(DISABLE_ENV) == "1":
        if args.schedule_policy == POLICY:
            print(f"laps-sd: {DISABLE_ENV}=1, scheduling with fcfs", file=sys.stderr)
            args.schedule_policy = "fcfs"
    elif (sentence := flags_alone(args)) is not None:
        refuse(sentence)
    elif args.schedule_policy == POLICY:
        from laps_sd.errors import LapsError

        try:
            go_active(args)
        except LapsError as error:
            refuse(str(error))
        _by_command_line = True
    if isinstance(args.retraction_policy, Default):
        args.retraction_policy = str(args.retraction_policy)
    return original(cls, args)


def resolve_once(original: Callable[..., object], server_args: Options) -> object:
    """Wrap ``ServerArgs.resolve_once``: the last moment to change an option, for the kill switch of `sglang.Engine`."""
    if os.environ.get(DISABLE_ENV) == "1" and server_args.schedule_policy == POLICY:
        print(f"laps-sd: {DISABLE_ENV}=1, scheduling with fcfs", file=sys.stderr)
        server_args.schedule_policy = "fcfs"
    return original(server_args)


def publish(original: Callable[..., object], server_args: Options, *args: object, **kwargs: object) -> object:
    """Wrap ``runtime_context.publish``: a launcher without a command line, as `sglang.Engine`, decides here.

    Its options come from the environment, LAPS_SD_BUNDLE and LAPS_SD_CONFIG, and what refuses is raised.
    """
    global _decided
    if kwargs.get("role") == "tokenizer" and not _by_command_line and server_args is not _decided:
        forget()
        _decided = server_args
        if server_args.schedule_policy == POLICY:
            names = type(server_args).__struct_fields__
            options = Namespace(**{name: getattr(server_args, name) for name in names})
            options.laps_sd_bundle, options.laps_sd_config = os.environ.get(BUNDLE_ENV), os.environ.get(CONFIG_ENV)
            options.retraction_policy = Default(options.retraction_policy)  # nobody can tell
            go_active(options)
    return original(server_args, *args, **kwargs)


def forget() -> None:
    """Take back what an earlier server of this process, or one that started it, has left behind."""
    global _by_command_line, _decided
    _by_command_line, _decided = False, None
    os.environ.pop(ACTIVE_ENV, None)
    hooks = sys.modules.get("laps_sd.serving.hooks.tokenizer")
    if hooks is not None:
        hooks.HOOKS.uninstall()


def go_active(args: Namespace) -> None:
    """Check everything, hook the tokenizer side of this process, and hand the options to its children.

    Raises
    ------
    LapsError
        laps-sd cannot work here; the message says what to do.
    """
    from laps_sd.errors import InputError, LapsError, WorkError
    from laps_sd.serving.hooks.tokenizer import HOOKS
    from laps_sd.serving.launch import read_launch
    from laps_sd.serving.preflight import check_sglang, refusal

    if (sentence := refusal(args)) is not None:
        raise InputError(sentence)
    try:
        launch = read_launch(args)
        check_sglang(allow_untested=launch.config.allow_untested_sglang)
        launch = HOOKS.install(launch, args)
    except LapsError:
        raise
    except Exception as error:  # whatever it is, serving on without us is worse
        reason = f"{type(error).__name__}: {error}"
        raise WorkError(f"cannot start ({reason}); start with {DISABLE_ENV}=1 to serve without it") from error
    launch.to_environment()
