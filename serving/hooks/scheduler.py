"""The hooks in SGLang's scheduler processes: thin glue between its objects and `SchedulerSide`."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, cast

from sglang.srt.runtime_context import get_parallel, get_spec

from laps_sd.data.meta_info import most_correct_drafts
from laps_sd.scheduler import make_policy
from laps_sd.serving.engine import (
    Batch,
    BatchResult,
    InternalState,
    ParallelOptions,
    Req,
    SamplingParams,
    Scheduler,
    SpeculationOptions,
    TreeCache,
)
from laps_sd.serving.flags import META_KEY, POLICY, STATE_KEY
from laps_sd.serving.hooks.prefill_adder import Admission, adder_class
from laps_sd.serving.hooks.registration import Hooks, register_hooks, require_hooks
from laps_sd.serving.hooks.targets import SCHEDULER_TARGETS
from laps_sd.serving.launch import Launch
from laps_sd.serving.metrics import SchedulerMetrics
from laps_sd.serving.requests.exchange import ResponseFields, detach
from laps_sd.serving.requests.scheduler_side import SchedulerSide
from laps_sd.serving.requests.step_clock import ASSUMED, StepClock

if TYPE_CHECKING:
    from laps_sd.serving.engine import OutputStreamer as _StreamerBase
else:
    _StreamerBase = object  # the real base is known at run time only


@dataclass(slots=True)
class Active:
    """What the hooks of a scheduler process work with, once it is known that laps-sd ranks here.

    Attributes
    ----------
    side : SchedulerSide
        The policy and our records of the requests.
    clock : StepClock
        Learns what steps and prefills cost.
    admission : Admission
        What all admission rounds share.
    policy_name : str
        Which policy ranks.
    adder : type or None
        The class of an admission round, made when SGLang first asks.
    """

    side: SchedulerSide
    clock: StepClock
    admission: Admission
    policy_name: str
    adder: type | None = None


class SchedulerHooks:
    """The hooks of one scheduler process. Until `init_schedule_policy` has run they do nothing.

    Attributes
    ----------
    active : Active or None
        None where laps-sd does not rank.
    table : mapping
        Every hook by the name of the function that it hooks.
    """

    def __init__(self) -> None:
        self.active: Active | None = None
        # Kept here because a method is a new object each time it is looked up, and SGLang's chain is searched by it.
        self.table: Hooks = {
            "_validate_and_adjust_policy": self.validate_policy,
            "calc_priority": self.calc_priority,
            "init_schedule_policy": self.init_schedule_policy,
            "get_internal_state": self.get_internal_state,
            "get_prefill_adder_class": self.get_prefill_adder_class,
            "get_output_streamer_class": self.get_output_streamer_class,
            "_create_generation_req": self.create_generation_req,
            "_abort_on_queued_limit": self.abort_on_queued_limit,
            "_normalize_decode_outputs": self.normalize_decode_outputs,
            "process_batch_result_prefill": self.process_batch_result_prefill,
            "_get_decode_retraction_order": self.retraction_order,
            "release_kv_cache": self.release_kv_cache,
        }

    def register(self) -> None:
        """Register every hook; SGLang applies them when it has executed all plugins."""
        register_hooks(SCHEDULER_TARGETS, self.table)

    # --- when the process starts ------------------------------------------------------------------------------

    def validate_policy(
        self, original: Callable[..., object], schedule_policy: object, policy: str, tree_cache: TreeCache
    ) -> object:
        """Wrap ``SchedulePolicy._validate_and_adjust_policy``: the first of ours that runs."""
        if policy != POLICY:
            return original(schedule_policy, policy, tree_cache)
        require_hooks(SCHEDULER_TARGETS, self.table)
        return original(schedule_policy, "fcfs", tree_cache)

    def init_schedule_policy(self, _result: None, scheduler: Scheduler) -> None:
        """Run after ``Scheduler.init_schedule_policy``."""
        launch = Launch.from_environment()
        if scheduler.schedule_policy != POLICY or launch is None:
            return
        config = launch.config
        spec: SpeculationOptions = get_spec()
        parallel: ParallelOptions = get_parallel()
        side = SchedulerSide(
            make_policy(config.policy_name, config.settings(), ASSUMED, scheduler.max_running_requests),
            max_correct_drafts=drafts_of(spec.speculative_num_draft_tokens, spec),
            low_priority_first=scheduler.schedule_low_priority_values_first,
            keep_steps=config.record.path is not None,
            in_flight=partial(in_flight, scheduler),
            metrics=SchedulerMetrics(config.policy_name)
            if scheduler.metrics_reporter.current_scheduler_metrics_enabled
            else None,
        )
        several = parallel.tp_size > 1  # whose clocks differ, and who must decide alike
        tree = scheduler.tree_cache
        self.active = Active(
            side,
            StepClock(launch.cost or (ASSUMED if several else None)),
            Admission(side, config, can_keep_kv=tree.supports_prefix_sharing() and not tree.supports_mamba()),
            config.policy_name,
        )
        # SGLang then asks for a victim whenever slots are full, and looks at the queue in every round.
        scheduler.enable_priority_preemption = config.preemption.enabled

    def get_internal_state(self, result: InternalState, _scheduler: Scheduler, _recv_req: object) -> None:
        """Run after ``Scheduler.get_internal_state``: ``/server_info`` says which policy ranks here."""
        if self.active is not None:
            result.internal_state[STATE_KEY] = {"policy": self.active.policy_name}

    def get_prefill_adder_class(self, result: type, _scheduler: Scheduler) -> type | None:
        """Run after ``Scheduler.get_prefill_adder_class``."""
        active = self.active
        if active is None:
            return None
        if active.adder is None:
            active.adder = adder_class(result, active.admission)
        return active.adder

    def get_output_streamer_class(self, result: type, _scheduler: Scheduler) -> type:
        """Run after ``Scheduler.get_output_streamer_class``."""
        return type("LapsOutputStreamer", (FieldsStreamer, result), {"hooks": self})

    # --- while it serves --------------------------------------------------------------------------------------

    def create_generation_req(
        self, original: Callable[..., Req], scheduler: Scheduler, recv_req: object, *args: object, **kwargs: object
    ) -> Req:
        """Wrap ``Scheduler._create_generation_req``: take our numbers off before the request is made."""
        if self.active is None:
            return original(scheduler, recv_req, *args, **kwargs)
        # Requests of one batch may share their parameters, so the numbers are taken off a copy.
        params = cast(SamplingParams, copy.copy(kwargs["sampling_params"] if "sampling_params" in kwargs else args[3]))
        attachment = detach(params)
        if "sampling_params" in kwargs:
            kwargs["sampling_params"] = params
        else:
            args = (*args[:3], params, *args[4:])
        req = original(scheduler, recv_req, *args, **kwargs)
        self.active.side.on_received(req, attachment)
        return req

    def calc_priority(
        self, _result: None, _schedule_policy: object, waiting_queue: list[Req], *_args: object, **_kwargs: object
    ) -> None:
        """Run after ``SchedulePolicy.calc_priority``."""
        if self.active is not None:
            self.active.side.rank(waiting_queue)

    def abort_on_queued_limit(self, original: Callable[..., bool], scheduler: Scheduler, recv_req: Req) -> bool:
        """Wrap ``Scheduler._abort_on_queued_limit``: only new requests count against the limit."""
        if self.active is not None and recv_req.retraction_count > 0:
            return False
        return original(scheduler, recv_req)

    def normalize_decode_outputs(
        self, outcome: tuple[list[list[int]], object], _processor: object, *_args: object, **kwargs: object
    ) -> None:
        """Run after ``SchedulerBatchResultProcessor._normalize_decode_outputs``: a step's tokens, not yet kept."""
        if self.active is None:
            return
        tokens, _ = outcome
        batch, result = cast(Batch, kwargs["batch"]), cast(BatchResult, kwargs["result"])
        correct = result.num_correct_drafts_per_req_cpu
        proposed = 0
        if correct is not None:
            spec: SpeculationOptions = get_spec()
            verified = result.speculative_num_draft_tokens or spec.speculative_num_draft_tokens
            proposed = drafts_of(verified, spec) or 0
        for i, req in enumerate(batch.reqs):
            if req.finished() or req.is_retracted or req.beam_group is not None:
                continue  # a row of the step before, which overlap scheduling had already launched
            k = 0 if correct is None else min(correct[i], proposed)
            self.active.side.on_step(req, k, proposed, len(tokens[i]))
        found = self.active.clock.on_decode(perf_counter(), len(batch.reqs), after_idle=batch.after_idle_gap)
        if found is not None:
            self.active.side.policy.set_cost(*found)

    def process_batch_result_prefill(
        self, _result: None, _processor: object, batch: Batch, result: BatchResult
    ) -> None:
        """Run after ``SchedulerBatchResultProcessor.process_batch_result_prefill``."""
        if self.active is not None:
            tokens = batch.extend_num_tokens or 0
            self.active.clock.on_prefill(perf_counter(), tokens, after_idle=batch.after_idle_gap)

    def retraction_order(self, original: Callable[..., list[int]], reqs: list[Req]) -> list[int]:
        """Wrap ``ScheduleBatch._get_decode_retraction_order``."""
        return original(reqs) if self.active is None else self.active.side.keep_order(reqs)

    def release_kv_cache(
        self, original: Callable[..., None], req: Req, tree_cache: TreeCache, *, checkpoint: bool
    ) -> None:
        """Wrap ``release_kv_cache``: a preempted request's KV stays as a finished one's does."""
        keep = self.active is not None and self.active.admission.releasing
        original(req, tree_cache, checkpoint=checkpoint or keep)


class FieldsStreamer(_StreamerBase):
    """Sends our fields along with every finished request; joined with SGLang's streamer class."""

    hooks: SchedulerHooks

    has_additional_customized_info = True

    def build_additional_customized_info(self, reqs: list[Req]) -> dict[str, list[object]]:
        """Add the fields of those that finished to what SGLang sends for each of ``reqs``."""
        info = super().build_additional_customized_info(reqs)
        # What failed before it was made a request of the scheduler (multimodal receiver) never passed us.
        ours = [req.finished() and hasattr(req, "laps_sd") for req in reqs]
        active = self.hooks.active
        if active is not None and any(ours):
            info[META_KEY] = [
                finished_fields(active.side, req) if mine else [] for req, mine in zip(reqs, ours, strict=True)
            ]
        return info


def finished_fields(side: SchedulerSide, req: Req) -> list[ResponseFields]:
    """Return what SGLang carries to the tokenizer process for a finished request: a list of one."""
    return [side.on_finish(req, cut=req.finished_reason.to_json()["type"] != "stop")]


def in_flight(scheduler: Scheduler) -> list[Req]:
    """Return the requests that SGLang holds a slot for: decoding, just prefilled, or between two chunks of a prompt."""
    chunked = scheduler.chunked_req
    return [*scheduler.collect_inflight_reqs(), *([] if chunked is None else [chunked])]


def drafts_of(num_draft_tokens: int | None, spec: SpeculationOptions) -> int | None:
    """Return the most correct drafts of a step that verifies ``num_draft_tokens``; None without speculation."""
    return most_correct_drafts(
        spec.speculative_algorithm, num_draft_tokens, spec.speculative_num_steps, spec.speculative_eagle_topk
    )


#: The hooks of this process.
HOOKS = SchedulerHooks()
