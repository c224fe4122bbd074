"""The one table of everything that the plugin touches in SGLang; `check` holds the installed version to it.

What is hooked stands here. What is read, called or overridden comes from the declarations in `laps_sd.serving.engine`,
and the functions and classes that our hooks import stand here again.
"""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from laps_sd.serving.engine import DESCRIBED, OURS, OVERRIDDEN

Kind = Literal["after", "around", "subclass", "call", "attributes", "class"]


@dataclass(frozen=True, slots=True)
class Target:
    """One function, class or set of attributes of SGLang.

    Attributes
    ----------
    path : str
        Dotted path of the function, method or class.
    kind : str
        ``after`` and ``around``: hooked. ``subclass``: overridden in a subclass. ``call``: called as it is.
        ``attributes``: attributes of the class that are read or written. ``class``: asked for the type of an object.
    names : tuple of str
        Parameter names in order; for ``attributes`` the attributes.
    why : str
        What we do there.
    """

    path: str
    kind: Kind
    names: tuple[str, ...]
    why: str

    @property
    def name(self) -> str:
        """Name of the function, without its module and class."""
        return self.path.rpartition(".")[2]


_ARGS = "sglang.srt.server_args.ServerArgs."
_TOKENIZER = "sglang.srt.managers.tokenizer_manager.TokenizerManager."
_SCHEDULER = "sglang.srt.managers.scheduler.Scheduler."
_POLICY = "sglang.srt.managers.schedule_policy.SchedulePolicy."
_PROCESSOR = "sglang.srt.managers.scheduler_components.batch_result_processor.SchedulerBatchResultProcessor."
_BATCH = "sglang.srt.managers.schedule_batch.ScheduleBatch."
_CONTEXT = "sglang.srt.runtime_context."
_HOOKS = "sglang.srt.plugins.hook_registry."

#: Hooked in every process that parses arguments, flag or no flag. Nothing else is touched without the flag.
ARGUMENT_TARGETS = (
    Target(_ARGS + "add_cli_args", "after", ("parser",), "add --laps-sd-* and the policy's name"),
    Target(_ARGS + "resolve_once", "around", ("self",), "the kill switch where there is no command line"),
    Target(
        _CONTEXT + "publish",
        "around",
        ("server_args", "role", "hf_config", "ranks"),
        "the same where there is no command line, as with sglang.Engine",
    ),
    Target(_ARGS + "from_cli_args", "around", ("cls", "args"), "read the flags, refuse what cannot work, go active"),
)

#: Hooked in the process that tokenizes (the server's main process).
TOKENIZER_TARGETS = (
    Target(
        _TOKENIZER + "_create_tokenized_object",
        "after",
        ("self", "obj", "input_text", "input_ids", "input_embeds", "mm_inputs", "token_type_ids"),
        "predict once per request and attach the numbers",
    ),
    Target(
        _TOKENIZER + "update_request_meta_info",
        "around",
        ("self", "meta_info", "state", "customized_info", "index", "finish_reason"),
        "put our fields into the response, count prediction errors, record the finished request",
    ),
    Target(_TOKENIZER + "_handle_abort_req", "around", ("self", "recv_obj"), "put our fields into an abort's response"),
)

#: Hooked in every scheduler process.
SCHEDULER_TARGETS = (
    Target(_POLICY + "_validate_and_adjust_policy", "around", ("self", "policy", "tree_cache"), "accept the name"),
    Target(
        _POLICY + "calc_priority",
        "after",
        ("self", "waiting_queue", "running_batch", "processed_tokens"),
        "order the waiting queue",
    ),
    Target(_SCHEDULER + "init_schedule_policy", "after", ("self",), "build our state, allow preemption"),
    Target(_SCHEDULER + "get_internal_state", "after", ("self", "recv_req"), "say in /server_info which policy ranks"),
    Target(_SCHEDULER + "get_prefill_adder_class", "after", ("self",), "preempt by our ranks"),
    Target(_SCHEDULER + "get_output_streamer_class", "after", ("self",), "send per-request fields with the answer"),
    Target(
        _SCHEDULER + "_create_generation_req",
        "around",
        ("self", "recv_req", "args", "kwargs"),
        "take the numbers off the request and keep its state",
    ),
    Target(
        _SCHEDULER + "_abort_on_queued_limit",
        "around",
        ("self", "recv_req"),
        "a preempted request is not a new one: --max-queued-requests must not abort it",
    ),
    Target(
        _PROCESSOR + "_normalize_decode_outputs",
        "after",
        ("self", "batch", "result", "logits_output", "next_token_ids"),
        "update the posterior after each verify or decode step",
    ),
    Target(
        _PROCESSOR + "process_batch_result_prefill",
        "around",
        ("self", "batch", "result"),
        "time prefills, and count the decode steps that ride in them (--enable-mixed-chunk)",
    ),
    Target(_SCHEDULER + "send_abort_output", "around", ("self", "abort_req", "req"), "send our fields with an abort"),
    Target(_BATCH + "prepare_for_extend", "after", ("self",), "count the answer so far into penalties"),
    Target(
        _BATCH + "_get_decode_retraction_order",
        "around",
        ("reqs",),
        "retract the least urgent first",
    ),
    Target(
        "sglang.srt.mem_cache.common.release_kv_cache",
        "around",
        ("req", "tree_cache", "checkpoint"),
        "keep a preempted request's KV in the radix cache",
    ),
)

#: Hooked in every scheduler process where LAPS_SD_ROUNDS names a file, whatever policy schedules.
ROUND_TARGETS = (
    Target(
        _SCHEDULER + "_create_generation_req",
        "after",
        ("self", "recv_req", "args", "kwargs"),
        "note the round in which a request arrives",
    ),
    Target(
        _PROCESSOR + "_normalize_decode_outputs",
        "after",
        ("self", "batch", "result", "logits_output", "next_token_ids"),
        "count a decode step",
    ),
    Target(_PROCESSOR + "process_batch_result_prefill", "around", ("self", "batch", "result"), "count a prefill"),
    Target(_SCHEDULER + "get_output_streamer_class", "after", ("self",), "send the rounds with the answer"),
)

#: Functions and classes of SGLang that our hooks import.
IMPORTED_TARGETS = (
    Target(_CONTEXT + "get_spec", "call", (), "how this server drafts"),
    Target(_CONTEXT + "get_parallel", "call", (), "how many ranks decide alike"),
    Target(_CONTEXT + "get_exec", "call", (), "whether answers are watermarked or must be equal bit by bit"),
    Target(_CONTEXT + "get_serving", "call", (), "the model's name"),
    Target(_CONTEXT + "get_observability", "call", (), "whether metrics are exported"),
    Target(
        "sglang.srt.managers.utils.is_health_check_generate_req",
        "call",
        ("recv_req",),
        "SGLang's own probes are neither predicted nor recorded",
    ),
    Target("sglang.srt.managers.io_struct.GenerateReqInput", "class", (), "tell generation from other requests"),
    Target(
        "sglang.srt.managers.schedule_policy.AddReqResult",
        "attributes",
        ("CONTINUE", "NO_TOKEN"),
        "the verdicts of an admission",
    ),
    Target(
        "sglang.srt.mem_cache.unified_radix_cache.UnifiedRadixCache",
        "class",
        (),
        "the cache whose prefixes may lie in host memory",
    ),
    Target(_HOOKS + "HookRegistry.register", "call", ("target", "hook", "hook_type"), "register our hooks"),
    Target(_HOOKS + "HookRegistry.apply_hooks", "call", (), "put them in place"),
    Target(_HOOKS + "HookType", "attributes", ("AFTER", "AROUND"), "how a function is hooked"),
)


def described_targets() -> Iterator[Target]:
    """Yield what `laps_sd.serving.engine` declares: the attributes of each class, then its methods."""
    for protocol, description in DESCRIBED.items():
        attributes = tuple(name for name in protocol.__annotations__ if name not in OURS)
        if attributes:
            yield Target(description.path, "attributes", attributes, description.why)
        for name, method in vars(protocol).items():
            if inspect.isfunction(method) and method.__qualname__ == f"{protocol.__name__}.{name}":
                kind: Kind = "subclass" if method.__qualname__ in OVERRIDDEN else "call"
                why = (method.__doc__ or "").strip().rstrip(".")
                yield Target(f"{description.path}.{name}", kind, tuple(inspect.signature(method).parameters), why)


#: Overridden, called or read, never hooked.
USED_TARGETS = (*described_targets(), *IMPORTED_TARGETS)

ALL_TARGETS = ARGUMENT_TARGETS + TOKENIZER_TARGETS + SCHEDULER_TARGETS + USED_TARGETS


_TITLES = {
    "Hooked in every process that parses arguments, flag or no flag": ARGUMENT_TARGETS,
    "Hooked in the process that tokenizes, with the flag": TOKENIZER_TARGETS,
    "Hooked in every scheduler process, with the flag": SCHEDULER_TARGETS,
    "Hooked in every scheduler process where LAPS_SD_ROUNDS names a file": ROUND_TARGETS,
    "Overridden, called or read": USED_TARGETS,
}


def as_markdown() -> str:
    """Return the table as the page docs/serving-targets.md."""
    lines = [
        "# What laps-sd touches in SGLang",
        "",
        "Written by `python -m laps_sd.serving.hooks.targets`, from the table that the installed SGLang is held to at",
        "every start. See [serving.md](serving.md). Paths are those below `sglang.srt`.",
    ]
    head = ("| function or class | how | parameters or attributes | why |", "|---|---|---|---|")
    for title, targets in _TITLES.items():
        lines += ["", f"## {title}", "", *head]
        for target in targets:
            names = ", ".join(f"`{name}`" for name in target.names)
            lines.append(f"| `{target.path.removeprefix('sglang.srt.')}` | {target.kind} | {names} | {target.why} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(as_markdown(), end="")
