"""Everything that must refuse to start: where SGLang would crash late or, worse, go on without us."""

import os
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass

from laps_sd.errors import InputError
from laps_sd.serving.flags import POLICY
from laps_sd.serving.hooks.check import check_targets, check_version, installed_sglang


@dataclass(frozen=True, slots=True)
class Refusal:
    """A launch option that laps-sd cannot live with.

    Attributes
    ----------
    option : str
        As the operator writes it.
    applies : callable
        Whether the parsed arguments ask for it.
    because : str
        What would happen, and what to do.
    """

    option: str
    applies: Callable[[Namespace], bool]
    because: str


REFUSALS = (
    Refusal(
        "--enable-priority-scheduling",
        lambda a: bool(a.enable_priority_scheduling),
        "SGLang's own priority order would replace ours; drop the flag, the priority field is respected without it",
    ),
    Refusal(
        "--abort-on-priority-when-disabled",
        lambda a: bool(a.abort_on_priority_when_disabled),
        "whether the priority field counts is said by hints.priority in --laps-sd-config, and where it does not the "
        "field is ignored; drop the flag",
    ),
    Refusal(
        "--retraction-policy priority",
        lambda a: a.retraction_policy == "priority",
        "SGLang wants --enable-priority-scheduling with it, which would replace our order; drop the flag, requests of "
        "a lower priority are retracted first without it",
    ),
    Refusal(
        "--tokenizer-worker-num above 1",
        lambda a: (a.tokenizer_worker_num or 1) > 1,
        "tokenizer workers load no plugins, so nothing would be predicted; use one worker",
    ),
    Refusal(
        "SGLANG_RUST_SERVER",
        lambda a: os.environ.get("SGLANG_RUST_SERVER", "").lower() in ("1", "true", "yes", "y", "on", "t"),
        "the Rust server tokenizes without plugins, so nothing would be predicted; unset it",
    ),
    Refusal(
        "--skip-tokenizer-init",
        lambda a: bool(a.skip_tokenizer_init),
        "predictions need the prompt's text; drop the flag",
    ),
    Refusal(
        "--disaggregation-mode",
        lambda a: a.disaggregation_mode not in (None, "null"),
        "prefill and decode would run in schedulers that cannot preempt for each other; serve both in one",
    ),
    Refusal(
        "--pp-size above 1",
        lambda a: (a.pp_size or 1) > 1,
        "pipeline stages hold several running batches and could not be ranked together; use tensor parallelism",
    ),
    Refusal(
        "--dllm-algorithm",
        lambda a: a.dllm_algorithm is not None,
        "diffusion models are scheduled by another loop that never asks the policy; use another --schedule-policy",
    ),
    Refusal(
        "--speculative-algorithm UNO",
        lambda a: (a.speculative_algorithm or "").upper() == "UNO",
        "each of its steps emits two tokens that nobody drafted, which records and predictors would count as one; use "
        "another algorithm or another --schedule-policy",
    ),
    Refusal(
        "--is-embedding",
        lambda a: bool(a.is_embedding),
        "embedding requests produce no tokens to schedule by; use another --schedule-policy",
    ),
    Refusal(
        "--encoder-only",
        lambda a: bool(a.encoder_only),
        "an encoder server schedules no decoding; use another --schedule-policy",
    ),
    Refusal(
        "--use-ray",
        lambda a: bool(a.use_ray),
        "Ray actors do not get the launcher's environment, so the schedulers would not know; start without Ray",
    ),
    Refusal(
        "--smg-grpc-mode or --grpc-mode",
        lambda a: bool(a.smg_grpc_mode or a.grpc_mode),
        "the gRPC front end tokenizes without plugins, so nothing would be predicted; use the HTTP server",
    ),
)


def refusal(args: Namespace) -> str | None:
    """Return the sentence of the first option that laps-sd cannot live with; None when there is none."""
    for entry in REFUSALS:
        if entry.applies(args):
            return f"--schedule-policy {POLICY} cannot work with {entry.option}: {entry.because}"
    return None


def check_sglang(*, allow_untested: bool) -> None:
    """Refuse an SGLang that is not what the table of targets says.

    Raises
    ------
    InputError
        Names the version found, the versions supported, what differs, and what to do.
    """
    found = installed_sglang()
    if (sentence := check_version(found, allow_untested=allow_untested)) is not None:
        raise InputError(sentence)
    mismatches = check_targets()
    if mismatches:
        more = f" and {len(mismatches) - 1} more" if len(mismatches) > 1 else ""
        raise InputError(
            f"SGLang {found} differs from what laps-sd hooks ({mismatches[0]}{more}); `laps-sd doctor` lists all; "
            "install a supported SGLang or remove what patches this one"
        )
