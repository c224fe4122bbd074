"""Our launch flags, and the names that travel between SGLang's processes: environment variables and keys.

Imported in every SGLang process that parses arguments, with or without the flag, so the standard library only.
"""

from argparse import ArgumentParser, Namespace
from typing import Final

#: The policy's name on SGLang's command line; which policy of the registry then serves, ``policy.name`` says.
POLICY: Final = "laps-sd"
#: Set by the launcher for its children; holds the options as JSON. Without it a child registers nothing.
ACTIVE_ENV: Final = "LAPS_SD_ACTIVE"
#: The kill switch: with ``1`` the flags are accepted and ignored, and the server schedules with fcfs.
DISABLE_ENV: Final = "LAPS_SD_DISABLE"
#: Names a file: rounds of the scheduler are counted under any policy, told in each answer and logged there.
ROUNDS_ENV: Final = "LAPS_SD_ROUNDS"
#: SGLang releases on which every test of ours ran; the CPU stand-in supplies what these call.
SUPPORTED_SGLANG: Final = ("0.5.23",)
#: Key of ``custom_params`` under which *our* numbers travel from the tokenizer process to the scheduler.
WIRE_KEY: Final = "__laps_sd__"
#: Key of ``custom_params`` under which a *client* may send hints.
HINT_KEY: Final = "laps_sd"
#: Key of ``meta_info`` under which a response carries the per-request fields.
META_KEY: Final = "laps_sd"
#: Key of a scheduler's part of ``/server_info`` under which it says which policy ranks.
STATE_KEY: Final = "laps_sd"


#: The same two options for `sglang.Engine`, which parses no command line.
BUNDLE_ENV: Final = "LAPS_SD_BUNDLE"
CONFIG_ENV: Final = "LAPS_SD_CONFIG"


class Default(str):
    """A default of SGLang's parser: the same text, and known not to be what somebody asked for."""

    __slots__ = ()


def add_flags(parser: ArgumentParser) -> None:
    """Add the policy's name and our two flags to SGLang's parser."""
    # argparse has no public way to extend the choices of an option that somebody else declared.
    action = parser._option_string_actions["--schedule-policy"]
    action.choices = [*(action.choices or ()), POLICY]
    retraction = parser._option_string_actions["--retraction-policy"]
    retraction.default, retraction.type = Default(retraction.default), None  # argparse would make it a plain text again
    group = parser.add_argument_group("laps-sd")
    group.add_argument(
        "--laps-sd-bundle",
        metavar="DIR|URI",
        help="With --schedule-policy laps-sd: predictor bundle, folder or MLflow URI (models:/NAME@ALIAS, runs:/…).",
    )
    group.add_argument(
        "--laps-sd-config",
        metavar="FILE",
        help="With --schedule-policy laps-sd: YAML file with everything rarely used; `laps-sd config show` prints it.",
    )


def flags_alone(args: Namespace) -> str | None:
    """Return one sentence when our flags are given without the policy, else None."""
    flags = {"--laps-sd-bundle": args.laps_sd_bundle, "--laps-sd-config": args.laps_sd_config}
    given = [flag for flag, value in flags.items() if value is not None]
    if args.schedule_policy == POLICY or not given:
        return None
    return f"{' and '.join(given)} without --schedule-policy laps-sd does nothing; add the policy or drop the flag"
