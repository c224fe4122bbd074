"""Our launch flags; imported in every SGLang process that parses arguments, so the standard library only."""

from argparse import ArgumentParser, Namespace

from laps_sd.serving.names import POLICY


def add_flags(parser: ArgumentParser) -> None:
    """Add the policy's name and our two flags to SGLang's parser."""
    # argparse has no public way to extend the choices of an option that somebody else declared.
    action = parser._option_string_actions["--schedule-policy"]
    action.choices = [*(action.choices or ()), POLICY]
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
    """One sentence when our flags are given without the policy, else None."""
    flags = {"--laps-sd-bundle": args.laps_sd_bundle, "--laps-sd-config": args.laps_sd_config}
    given = [flag for flag, value in flags.items() if value is not None]
    if args.schedule_policy == POLICY or not given:
        return None
    return f"{' and '.join(given)} without --schedule-policy laps-sd does nothing; add the policy or drop the flag"
