"""The hooks in SGLang's scheduler processes: thin glue between its objects and `SchedulerSide`."""

import copy
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

from sglang.srt.runtime_context import get_parallel, get_spec

from laps_sd.scheduler import make_policy
from laps_sd.serving.config import ServingConfig
from laps_sd.serving.hooks import install as hooking
from laps_sd.serving.hooks import prefill_adder as preemption
from laps_sd.serving.hooks.targets import SCHEDULER_TARGETS
from laps_sd.serving.launch import Launch
from laps_sd.serving.metrics import SchedulerMetrics
from laps_sd.serving.names import META_KEY, POLICY
from laps_sd.serving.refuse import refuse
from laps_sd.serving.scheduler_side import SchedulerSide
from laps_sd.serving.step_clock import ASSUMED, StepClock
from laps_sd.serving.wire import take_off

_side: SchedulerSide | None = None
_clock: StepClock | None = None
_config = ServingConfig()
_adder: Any = None


def register() -> None:
    """Register every scheduler hook; SGLang applies them when it has executed all plugins."""
    hooking.register(SCHEDULER_TARGETS, HOOKS)


def validate_policy(original: Callable[..., Any], self: Any, policy: str, tree_cache: Any) -> Any:
    """Hook around ``SchedulePolicy._validate_and_adjust_policy``: the first of ours that runs."""
    if policy != POLICY:
        return original(self, policy, tree_cache)
    if absent := hooking.missing(SCHEDULER_TARGETS, HOOKS):
        refuse(f"another plugin holds {', '.join(absent)}; remove it (SGLANG_PLUGINS selects plugins by name)")
    return original(self, "fcfs", tree_cache)


def init_schedule_policy(_result: None, self: Any) -> None:
    """Hook after ``Scheduler.init_schedule_policy``."""
    global _side, _clock, _config, _adder
    launch = Launch.from_environment()
    if self.schedule_policy != POLICY or launch is None:
        return
    _config = config = launch.config
    _side = SchedulerSide(
        make_policy(POLICY, config.settings(), ASSUMED, self.max_running_requests),
        max_correct_drafts=most_correct_drafts(),
        low_priority_first=self.schedule_low_priority_values_first,
        keep_steps=config.record.path is not None,
        in_flight=partial(in_flight, self),
        metrics=SchedulerMetrics() if self.metrics_reporter.current_scheduler_metrics_enabled else None,
    )
    _adder = None
    several = get_parallel().tp_size > 1  # whose clocks differ, and who must decide alike
    _clock = StepClock(launch.cost or (ASSUMED if several else None))
    # SGLang then asks for a victim whenever slots are full, and looks at the queue in every round.
    self.enable_priority_preemption = config.preemption.enabled


def in_flight(scheduler: Any) -> list[Any]:
    """Requests that SGLang holds a slot for: decoding, just prefilled, or with a prompt between two chunks."""
    chunked = scheduler.chunked_req
    return [*scheduler.collect_inflight_reqs(), *([] if chunked is None else [chunked])]


def most_correct_drafts() -> int | None:
    """Most drafts that one verify step can accept as launched; None without speculation."""
    spec = get_spec()
    if spec.speculative_algorithm is None or spec.speculative_num_draft_tokens is None:
        return None
    return drafts_of(spec.speculative_num_draft_tokens, spec)


def drafts_of(num_draft_tokens: int, spec: Any) -> int:
    """Most correct drafts of a step that verified ``num_draft_tokens``, the root included: a tree is only so deep."""
    most = num_draft_tokens - 1
    if (spec.speculative_eagle_topk or 1) > 1 and spec.speculative_num_steps and spec.speculative_algorithm != "NGRAM":
        return int(min(most, spec.speculative_num_steps))
    return int(most)


def get_prefill_adder_class(result: Any, self: Any) -> Any:
    """Hook after ``Scheduler.get_prefill_adder_class``."""
    global _adder
    if _side is None:
        return None
    if _adder is None:
        can_keep_kv = self.tree_cache.supports_prefix_sharing() and not self.tree_cache.supports_mamba()
        _adder = preemption.adder_class(result, _side, _config, can_keep_kv=can_keep_kv)
    return _adder


def get_output_streamer_class(result: Any, self: Any) -> Any:
    """Hook after ``Scheduler.get_output_streamer_class``."""

    class LapsOutputStreamer(result):  # type: ignore[misc]
        """Sends our fields along with every finished request."""

        has_additional_customized_info = True

        def build_additional_customized_info(self, reqs: list[Any]) -> dict[str, list[Any]]:
            info: dict[str, list[Any]] = result.build_additional_customized_info(self, reqs)
            # What failed before it was made a request of the scheduler (multimodal receiver) never passed us.
            ours = [req.finished() and hasattr(req, "laps_sd") for req in reqs]
            if _side is not None and any(ours):
                info[META_KEY] = [
                    finished_fields(_side, req) if mine else [] for req, mine in zip(reqs, ours, strict=True)
                ]
            return info

    return LapsOutputStreamer


def finished_fields(side: SchedulerSide, req: Any) -> list[dict[str, Any]]:
    """What SGLang carries to the tokenizer process for a finished request: a list of one."""
    return [side.on_finish(req, cut=req.finished_reason.to_json()["type"] != "stop")]


def create_generation_req(original: Callable[..., Any], self: Any, recv_req: Any, *args: Any, **kwargs: Any) -> Any:
    """Hook around ``Scheduler._create_generation_req``: take our numbers off before the request is made."""
    if _side is None:
        return original(self, recv_req, *args, **kwargs)
    # Requests of one batch may share their parameters, so the numbers are taken off a copy.
    given = kwargs["sampling_params"] if "sampling_params" in kwargs else args[3]
    params = copy.copy(given)
    carried = take_off(params)
    if "sampling_params" in kwargs:
        kwargs["sampling_params"] = params
    else:
        args = (*args[:3], params, *args[4:])
    req = original(self, recv_req, *args, **kwargs)
    _side.track(req, carried)
    return req


def calc_priority(_result: None, self: Any, waiting_queue: list[Any], *_args: Any, **_kwargs: Any) -> None:
    """Hook after ``SchedulePolicy.calc_priority``."""
    if _side is not None:
        _side.rank(waiting_queue)


def abort_on_queued_limit(original: Callable[..., bool], self: Any, recv_req: Any) -> bool:
    """Hook around ``Scheduler._abort_on_queued_limit``: only new requests count against the limit."""
    if _side is not None and recv_req.retraction_count > 0:
        return False
    return original(self, recv_req)


def normalize_decode_outputs(outcome: tuple[list[list[int]], Any], self: Any, *_args: Any, **kwargs: Any) -> None:
    """Hook after ``SchedulerBatchResultProcessor._normalize_decode_outputs``: a step's tokens, not yet kept."""
    if _side is None:
        return
    tokens, _ = outcome
    batch, result = kwargs["batch"], kwargs["result"]
    correct = result.num_correct_drafts_per_req_cpu
    proposed = 0
    if correct is not None:
        spec = get_spec()
        proposed = drafts_of(result.speculative_num_draft_tokens or spec.speculative_num_draft_tokens, spec)
    for i, req in enumerate(batch.reqs):
        if req.finished() or req.is_retracted or req.beam_group is not None:
            continue  # a row of the step before, which overlap scheduling had already launched
        k = 0 if correct is None else min(correct[i], proposed)
        _side.on_step(req, k, proposed, len(tokens[i]))
    if _clock is not None:
        found = _clock.on_decode(perf_counter(), len(batch.reqs), after_idle=batch.after_idle_gap)
        if found is not None:
            _side.policy.set_cost(*found)


def process_batch_result_prefill(_result: None, self: Any, batch: Any, result: Any) -> None:
    """Hook after ``SchedulerBatchResultProcessor.process_batch_result_prefill``."""
    if _clock is not None:
        _clock.on_prefill(perf_counter(), batch.extend_num_tokens or 0, after_idle=batch.after_idle_gap)


def retraction_order(original: Callable[..., list[int]], reqs: list[Any]) -> list[int]:
    """Hook around ``ScheduleBatch._get_decode_retraction_order``."""
    return original(reqs) if _side is None else _side.keep_order(reqs)


def release_kv_cache(original: Callable[..., None], req: Any, tree_cache: Any, *, checkpoint: bool) -> None:
    """Hook around ``release_kv_cache``: a preempted request's KV stays as a finished one's does."""
    original(req, tree_cache, checkpoint=checkpoint or preemption.kept())


HOOKS: dict[str, Callable[..., Any]] = {
    "_validate_and_adjust_policy": validate_policy,
    "calc_priority": calc_priority,
    "init_schedule_policy": init_schedule_policy,
    "get_prefill_adder_class": get_prefill_adder_class,
    "get_output_streamer_class": get_output_streamer_class,
    "_create_generation_req": create_generation_req,
    "_abort_on_queued_limit": abort_on_queued_limit,
    "_normalize_decode_outputs": normalize_decode_outputs,
    "process_batch_result_prefill": process_batch_result_prefill,
    "_get_decode_retraction_order": retraction_order,
    "release_kv_cache": release_kv_cache,
}
