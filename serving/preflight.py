"""Everything that must refuse to start: where SGLang would crash late or, worse, go on without us."""

import os
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

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


@dataclass(frozen=True, slots=True)
class RunsWith:
    """One row of the table of what laps-sd was tried with.

    Attributes
    ----------
    what : str
        An option or a feature of SGLang.
    verdict : str
        ``works``, ``refused``, or ``not run`` where no machine of ours could.
    shown_by : str
        The test that shows it (``file.py::name``), or why there is none.
    """

    what: str
    verdict: Literal["works", "refused", "not run"]
    shown_by: str


_HERE, _SLOW = "test_runs_with.py", "test_serving_slow.py"
_MATRIX = "test_tokens_are_those_of_fcfs_under_preemptions_and_retractions"
_RETRACTION = "test_sglangs_own_retraction_is_left_alone_where_it_was_asked_for"
_OFFLINE = "test_an_engine_without_command_line_takes_its_options_from_the_environment"
_CUDA = "needs a CUDA GPU: "

#: What was tried; what is refused is added from `REFUSALS`.
RUNS_WITH = (
    RunsWith("tensor parallelism (`--tp-size 2`)", "works", f"{_HERE}::test_two_ranks_preempt_alike"),
    RunsWith("two nodes (`--nnodes 2`)", "works", f"{_HERE}::test_two_nodes_preempt_alike"),
    RunsWith(
        "a hook that fails, on two ranks",
        "works",
        f"{_HERE}::test_two_ranks_go_back_to_fcfs_together_when_the_policy_fails",
    ),
    RunsWith(
        "`--max-queued-requests`", "works", f"{_HERE}::test_a_full_queue_refuses_new_requests_and_no_preempted_one"
    ),
    RunsWith("`--schedule-low-priority-values-first`", "works", f"{_HERE}::test_two_ranks_preempt_alike"),
    RunsWith("beam search", "works", f"{_HERE}::test_beams_run_beside_others_and_lose_no_slot"),
    RunsWith("plain decoding with overlap scheduling", "works", f"{_SLOW}::{_MATRIX}"),
    RunsWith("NGRAM, STANDALONE chains and trees, pages of 16", "works", f"{_SLOW}::{_MATRIX}"),
    RunsWith("EAGLE with adaptive draft lengths", "works", f"{_SLOW}::{_MATRIX}"),
    RunsWith("`--retraction-policy length`", "works", "test_kv_memory.py::" + _RETRACTION),
    RunsWith("`sglang.Engine`", "works", "test_plugin.py::" + _OFFLINE),
    RunsWith("LoRA", "not run", _CUDA + "SGLang's adapters take pinned memory, on a CPU too"),
    RunsWith("hierarchical cache", "not run", _CUDA + "its streams are CUDA's"),
    RunsWith("memory saver", "not run", _CUDA + "torch_memory_saver is a CUDA library"),
    RunsWith("overlap scheduling of speculation (spec v2)", "not run", "SGLang switches it off on a CPU"),
    RunsWith("CUDA graphs, sampled verification", "not run", "a CPU has neither"),
    RunsWith("multimodal models", "not run", "their processors need torchvision, of which the CPU server has none"),
)


def runs_with_table() -> str:
    """Return what laps-sd runs with, as a table in Markdown."""
    refused = [RunsWith(f"`{entry.option}`", "refused", entry.because) for entry in REFUSALS]
    lines = ["| with | | shown by, or why |", "|---|---|---|"]
    for row in (*RUNS_WITH, *refused):
        shown = f"`{row.shown_by}`" if row.verdict == "works" else row.shown_by
        lines.append(f"| {row.what} | {row.verdict} | {shown} |")
    return "\n".join(lines) + "\n"


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


if __name__ == "__main__":
    print(runs_with_table(), end="")
