"""The one table of everything that the plugin touches in SGLang; `target_check` holds the installed version to it."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["after", "around", "subclass", "call", "attributes"]


@dataclass(frozen=True, slots=True)
class Target:
    """One function, class or set of attributes of SGLang.

    Attributes
    ----------
    path : str
        Dotted path of the function, method or class.
    kind : str
        ``after`` and ``around``: hooked. ``subclass``: overridden in a subclass. ``call``: called as it is.
        ``attributes``: instance attributes of the class that are read or written.
    names : tuple of str
        Parameter names in order; for ``attributes`` the attributes.
    why : str
        What we do there.
    """

    path: str
    kind: Kind
    names: tuple[str, ...]
    why: str


_ARGS = "sglang.srt.server_args.ServerArgs."
_TOKENIZER = "sglang.srt.managers.tokenizer_manager.TokenizerManager."
_SCHEDULER = "sglang.srt.managers.scheduler.Scheduler."
_POLICY = "sglang.srt.managers.schedule_policy.SchedulePolicy."
_ADDER = "sglang.srt.managers.schedule_policy.PrefillAdder"
_BATCH = "sglang.srt.managers.schedule_batch.ScheduleBatch"
_REQ = "sglang.srt.managers.schedule_batch.Req"
_PROCESSOR = "sglang.srt.managers.scheduler_components.batch_result_processor.SchedulerBatchResultProcessor."
_STREAMER = "sglang.srt.managers.scheduler_components.output_streamer.SchedulerOutputStreamer"

#: Hooked in every process that parses arguments, flag or no flag. Nothing else is touched without the flag.
ARGUMENT_TARGETS = (
    Target(_ARGS + "add_cli_args", "after", ("parser",), "add --laps-sd-* and the policy's name"),
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
    Target(_PROCESSOR + "process_batch_result_prefill", "after", ("self", "batch", "result"), "time prefills"),
    Target(_BATCH + "._get_decode_retraction_order", "around", ("reqs",), "retract the least urgent first"),
    Target(
        "sglang.srt.mem_cache.common.release_kv_cache",
        "around",
        ("req", "tree_cache", "checkpoint"),
        "keep a preempted request's KV in the radix cache",
    ),
)

#: Overridden, called or read, never hooked.
USED_TARGETS = (
    Target(
        _ADDER + ".add_one_req",
        "subclass",
        ("self", "req", "has_chunked_req", "truncation_align_size"),
        "preempt and retry when KV is full, pass over what does not fit",
    ),
    Target(_ADDER + ".preempt_to_schedule", "subclass", ("self", "req"), "preempt when slots are full"),
    Target(
        _ADDER + "._get_running_request_total_token_offset",
        "call",
        ("self", "req"),
        "give a victim's reserved tokens back to the budget",
    ),
    Target(_ADDER + ".budget_state", "call", ("self",), "may another request be tried"),
    Target(_ADDER + "._lock_node", "call", ("self", "last_node", "lock_host"), "keep a candidate's cached prefix"),
    Target(_ADDER + "._swa_new_tokens", "call", ("self", "req"), "tokens that a candidate needs for its output"),
    Target(_ADDER + "._request_slot_reserve_for_req", "call", ("self", "req"), "tokens that its slot costs"),
    Target(_ADDER + "._mamba_gap_budget_for_req", "call", ("self", "req", "include_host_hit"), "and its Mamba state"),
    Target(
        _ADDER,
        "attributes",
        ("running_batch", "memory_budget", "can_run_list", "preempt_list", "tree_cache", "new_chunked_req",
         "rem_total_tokens", "per_req_token_overhead", "req_states"),
        "the state of one admission round",
    ),
    Target(
        _STREAMER + ".build_additional_customized_info", "subclass", ("self", "reqs"), "fields of finished requests"
    ),
    Target(_BATCH + ".release_req", "call", ("self", "idx", "remaing_req_count", "offload_kv"), "take the slot"),
    Target(_BATCH + ".filter_batch", "call", ("self", "reqs_to_exclude", "keep_indices"), "drop the victim"),
    Target(_REQ + ".finished", "call", ("self",), "skip requests whose KV is freed already"),
    Target(_REQ + ".needs_host_load_back", "call", ("self",), "keep the part of a prefix that lies in host memory"),
    Target("sglang.srt.mem_cache.unified_radix_cache.UnifiedRadixCache", "call", ("params",), "the cache that has one"),
    Target(
        _REQ,
        "attributes",
        (
            "rid", "priority", "origin_input_ids", "output_ids", "sampling_params", "is_retracted", "retraction_count",
            "prefix_len", "finished_reason", "beam_group", "session", "input_embeds", "num_matched_prefix_tokens",
            "full_untruncated_fill_ids", "time_stats", "seqlen", "last_node", "best_match_node",
        ),
        "what the ranking and the record read",
    ),
    Target(
        "sglang.srt.managers.utils.GenerationBatchResult",
        "attributes",
        ("num_correct_drafts_per_req_cpu", "speculative_num_draft_tokens"),
        "correct drafts of each request, and how many were verified in this very step",
    ),
    Target(
        _BATCH,
        "attributes",
        ("reqs", "extend_num_tokens", "after_idle_gap", "batch_is_full"),
        "which requests a step was for, and whether a slot is free",
    ),
    Target(
        "sglang.srt.managers.io_struct.TokenizedGenerateReqInput",
        "attributes",
        ("priority", "sampling_params"),
        "bound the request's own priority, and carry the numbers",
    ),
    Target(
        "sglang.srt.sampling.sampling_params.SamplingParams",
        "attributes",
        ("custom_params", "max_new_tokens", "temperature", "top_k"),
        "numbers travel in custom_params",
    ),
    Target("sglang.srt.runtime_context.get_spec", "call", (), "how this server drafts"),
    Target(_SCHEDULER + "collect_inflight_reqs", "call", ("self",), "forget running requests that it dropped"),
    Target(
        "sglang.srt.managers.utils.is_health_check_generate_req",
        "call",
        ("recv_req",),
        "SGLang's own probes are neither predicted nor recorded",
    ),
    Target(
        "sglang.srt.managers.scheduler_components.metrics_reporter.SchedulerMetricsReporter",
        "attributes",
        ("current_scheduler_metrics_enabled",),
        "count in one rank only",
    ),
    Target(
        "sglang.srt.managers.scheduler.Scheduler",
        "attributes",
        ("enable_priority_preemption", "schedule_policy", "tree_cache", "chunked_req",
         "metrics_reporter", "schedule_low_priority_values_first", "max_running_requests"),
        "the scheduler's own state",
    ),
)  # fmt: skip

ALL_TARGETS = ARGUMENT_TARGETS + TOKENIZER_TARGETS + SCHEDULER_TARGETS + USED_TARGETS
