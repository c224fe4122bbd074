"""The hooks in SGLang's scheduler processes: thin glue between its objects and `SchedulerSide`."""

import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, cast

from sglang.srt.runtime_context import get_exec, get_parallel, get_spec

from laps_sd.data.meta_info import most_correct_drafts
from laps_sd.data.progress.answers import AnswerCounter
from laps_sd.data.tokenizer import Tokenizer
from laps_sd.errors import InputError
from laps_sd.scheduler import make_policy
from laps_sd.serving.engine import (
    Abort,
    Batch,
    BatchResult,
    ExecutionOptions,
    InternalState,
    ParallelOptions,
    Req,
    SamplingParams,
    Scheduler,
    SpeculationOptions,
    TreeCache,
)
from laps_sd.serving.failure_log import FailureLog
from laps_sd.serving.flags import DISABLE_ENV, META_KEY, POLICY, STATE_KEY
from laps_sd.serving.hooks.agreement import all_ranks_fail, all_ranks_hold, shared_store
from laps_sd.serving.hooks.check import installed_sglang
from laps_sd.serving.hooks.guard import guarded
from laps_sd.serving.hooks.penalties import restore_penalties
from laps_sd.serving.hooks.prefill_adder import Admission, adder_class
from laps_sd.serving.hooks.registration import Hooks, register_hooks, require_hooks
from laps_sd.serving.hooks.targets import SCHEDULER_TARGETS
from laps_sd.serving.launch import Launch
from laps_sd.serving.monitoring.metrics import SchedulerMetrics
from laps_sd.serving.monitoring.served import Served
from laps_sd.serving.requests.exchange import ResponseFields, attach_to_abort, detach
from laps_sd.serving.requests.refining import Refining
from laps_sd.serving.requests.resumption import ServerTraits
from laps_sd.serving.requests.scheduler_side import SchedulerRequest, SchedulerSide
from laps_sd.serving.requests.step_clock import ASSUMED, StepClock
from laps_sd.serving.termination.refuse import refuse

logger = logging.getLogger(__name__)

#: Ranks load the model together; one that has not come to this by then will not come.
RANKS_START_WITHIN_S = 300.0
#: Hooks of a server that starts: without them it must not.
STARTING = frozenset({"_validate_and_adjust_policy", "init_schedule_policy", "get_output_streamer_class"})

if TYPE_CHECKING:
    from laps_sd.serving.engine import OutputStreamer as _StreamerBase
else:
    _StreamerBase = object  # the real base is known at run time only


@dataclass(slots=True)
class Active:
    """What the hooks of a scheduler process work with, once it is known that laps-sd ranks here.

    Attributes
    ----------
    scheduler : Scheduler
        SGLang's own.
    side : SchedulerSide
        The policy and our records of the requests.
    clock : StepClock
        Learns what steps and prefills cost.
    admission : Admission
        What all admission rounds share.
    served : Served
        Which policy ranks, and with what.
    adder : type or None
        The class of an admission round, made when SGLang first asks.
    """

    scheduler: Scheduler
    side: SchedulerSide
    clock: StepClock
    admission: Admission
    served: Served
    adder: type | None = None


class SchedulerHooks:
    """The hooks of one scheduler process. Until `init_schedule_policy` has run they do nothing.

    Attributes
    ----------
    active : Active or None
        None where laps-sd does not rank.
    stood_down : str or None
        The hook whose failure made SGLang schedule by itself, for good.
    served : Served or None
        What ranks here, or did until a hook failed.
    table : mapping
        Every hook by the name of the function that it hooks.
    """

    def __init__(self) -> None:
        self.active: Active | None = None
        self.stood_down: str | None = None
        self.served: Served | None = None
        self._unsorted = False
        self._later_failures = FailureLog(logger, "a hook failed again after the server went back to fcfs")
        hooks: dict[str, Callable[..., object]] = {
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
            "prepare_for_extend": self.prepare_for_extend,
            "send_abort_output": self.send_abort_output,
            "_get_decode_retraction_order": self.retraction_order,
            "release_kv_cache": self.release_kv_cache,
        }
        # Kept here because a method is a new object each time it is looked up, and SGLang's chain is searched by it.
        self.table: Hooks = guarded(SCHEDULER_TARGETS, hooks, self.fall_back, STARTING)

    def register(self) -> None:
        """Register every hook; SGLang applies them when it has executed all plugins."""
        register_hooks(SCHEDULER_TARGETS, self.table)

    # --- when a hook fails ------------------------------------------------------------------------------------

    def fall_back(self, name: str, error: Exception) -> None:
        """Let SGLang schedule by itself from now on, because a hook raised; never raises.

        Ends the server where several ranks decide together and not all of them failed: they would go on with
        different batches and wait for each other for ever.
        """
        active = self.active
        if active is None:
            self._later_failures.note(error)
            return
        logger.error(
            "laps-sd: the hook %s failed (%s: %s); this server schedules with fcfs and records nothing from now on",
            name, type(error).__name__, error, exc_info=error,
        )  # fmt: skip
        note = f"{name}, {type(error).__name__}, round {active.side.policy.now}"
        if not all_ranks_fail(note, get_parallel(), shared_store):
            refuse(
                f"the hook {name} failed on one tensor-parallel rank and not on the others ({type(error).__name__}: "
                f"{error}); ranks that decide apart would wait for each other for ever, so this server ends: restart "
                f"it, with {DISABLE_ENV}=1 to serve without laps-sd"
            )
        self._stand_down(name)

    def _stand_down(self, name: str) -> None:
        active, self.active = self.active, None
        if active is None:
            return
        self.stood_down, self._unsorted = name, True
        active.admission.active = False  # for the admission round that may be under way
        active.scheduler.enable_priority_preemption = False  # SGLang's own would compare priorities that are None
        active.side.stand_down(name)

    # --- when the process starts ------------------------------------------------------------------------------

    def validate_policy(
        self, original: Callable[..., object], schedule_policy: object, policy: str, tree_cache: TreeCache
    ) -> object:
        """Wrap ``SchedulePolicy._validate_and_adjust_policy``: the first of ours that runs."""
        if policy != POLICY:
            return original(schedule_policy, policy, tree_cache)
        try:
            require_hooks(SCHEDULER_TARGETS, self.table)
        except InputError as error:
            refuse(str(error))
        return original(schedule_policy, "fcfs", tree_cache)

    def init_schedule_policy(self, _result: None, scheduler: Scheduler) -> None:
        """Run after ``Scheduler.init_schedule_policy``."""
        launch = Launch.from_environment()
        if scheduler.schedule_policy != POLICY or launch is None:
            return
        self.stood_down, self._unsorted, self.served = None, False, None
        config = launch.config
        served = Served(
            launch.bundle or "", launch.version or "", launch.run or "", installed_sglang() or "", config.policy_name
        )
        spec: SpeculationOptions = get_spec()
        parallel: ParallelOptions = get_parallel()
        several = parallel.tp_size > 1  # whose clocks differ, and who must decide alike
        clock = StepClock(launch.cost or (ASSUMED if several else None))
        side = SchedulerSide(
            make_policy(config.policy_name, config.settings(), ASSUMED, scheduler.max_running_requests),
            max_correct_drafts=0  # one token a step is then no belief but known
            if spec.speculative_algorithm is None
            else drafts_of(spec.speculative_num_draft_tokens, spec),
            low_priority_first=scheduler.schedule_low_priority_values_first,
            keep_steps=config.record.path is not None,
            traits=server_traits(spec, get_exec()),
            in_flight=partial(in_flight, scheduler),
            metrics=SchedulerMetrics(config.policy_name, served)
            if scheduler.metrics_reporter.current_scheduler_metrics_enabled
            else None,
            refining=refining_of(launch, scheduler.tokenizer, parallel),
            cost=clock.measured,
        )
        tree = scheduler.tree_cache
        self.active = Active(
            scheduler,
            side,
            clock,
            Admission(
                side,
                config,
                can_keep_kv=tree.supports_prefix_sharing() and not tree.supports_mamba(),
                fall_back=self.fall_back,
            ),
            served,
        )
        self.served = served
        if not several or parallel.tp_rank == 0:  # one line a replica
            logger.info("laps-sd: %s", served)
        side.policy.engine.keeps_kv = self.active.admission.keeps_kv
        # SGLang then asks for a victim whenever slots are full, and looks at the queue in every round.
        scheduler.enable_priority_preemption = config.preemption.enabled

    def get_internal_state(self, result: InternalState, _scheduler: Scheduler, _recv_req: object) -> None:
        """Run after ``Scheduler.get_internal_state``: ``/server_info`` says which policy ranks here."""
        served = None if self.served is None else self.served.labels()
        if self.stood_down is not None:
            result.internal_state[STATE_KEY] = {**(served or {}), "policy": "fcfs", "failed_hook": self.stood_down}
        elif served is not None and self.active is not None:
            result.internal_state[STATE_KEY] = served

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
        if self.active is None and self.stood_down is None:
            return original(scheduler, recv_req, *args, **kwargs)
        # Requests of one batch may share their parameters, so the numbers are taken off a copy.
        params = cast(SamplingParams, copy.copy(kwargs["sampling_params"] if "sampling_params" in kwargs else args[3]))
        attachment = detach(params)
        if "sampling_params" in kwargs:
            kwargs["sampling_params"] = params
        else:
            args = (*args[:3], params, *args[4:])
        if attachment.fallen_back:  # said with the request, so all ranks see it here
            self._stand_down("of the tokenizer process")
        req = original(scheduler, recv_req, *args, **kwargs)
        if self.active is not None:
            self.active.side.on_received(req, attachment)
        return req

    def calc_priority(
        self, _result: None, _schedule_policy: object, waiting_queue: list[Req], *_args: object, **_kwargs: object
    ) -> None:
        """Run after ``SchedulePolicy.calc_priority``."""
        if self.active is not None:
            count = len(waiting_queue)
            self.active.side.rank(waiting_queue)
            if len(waiting_queue) != count:
                raise ValueError(f"a ranking that makes {len(waiting_queue)} requests of {count}")
        elif self._unsorted:  # what our order left behind, once: by arrival, and new ones join at the end
            self._unsorted = False
            waiting_queue.sort(key=arrival_of)

    def abort_on_queued_limit(self, original: Callable[..., bool], scheduler: Scheduler, recv_req: Req) -> bool:
        """Wrap ``Scheduler._abort_on_queued_limit``: only new requests count against the limit."""
        ours = self.active is not None or self.stood_down is not None
        if ours and recv_req.retraction_count > 0:
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
        # Where an algorithm verifies fewer drafts of one request than of another, it says how many tokens of each.
        caps = None if result.cap_lens is None else result.cap_lens.tolist()
        for i, req in enumerate(batch.reqs):
            if not in_progress(req):
                continue
            n = proposed if caps is None else min(proposed, max(caps[i] - 1, 0))
            k = 0 if correct is None else min(correct[i], n)
            self.active.side.on_step(req, k, n, len(tokens[i]))
        found = self.active.clock.on_decode(perf_counter(), len(batch.reqs), after_idle=batch.after_idle_gap)
        if found is not None:
            self.active.side.policy.set_cost(*found)

    def process_batch_result_prefill(
        self, original: Callable[..., None], processor: object, batch: Batch, result: BatchResult
    ) -> None:
        """Wrap ``SchedulerBatchResultProcessor.process_batch_result_prefill``."""
        active = self.active
        if active is not None:
            for req in batch.decoding_reqs or ():  # each decodes one token in the prefill of others
                if in_progress(req):
                    active.side.on_step(req, 0, 0, 1)
        original(processor, batch, result)
        if active is not None:
            tokens = batch.extend_num_tokens or 0
            active.clock.on_prefill(perf_counter(), tokens, after_idle=batch.after_idle_gap)

    def prepare_for_extend(self, _result: None, batch: Batch) -> None:
        """Run after ``ScheduleBatch.prepare_for_extend``: the penalties of the batch are new.

        Also when another hook has failed: who was preempted before resumes.
        """
        if self.active is not None or self.stood_down not in (None, "prepare_for_extend"):
            restore_penalties(batch)

    def send_abort_output(self, original: Callable[..., None], scheduler: object, abort_req: Abort, req: Req) -> None:
        """Wrap ``Scheduler.send_abort_output``: the request ends outside of the stream of answers."""
        if self.active is not None and hasattr(req, "laps_sd"):
            attach_to_abort(abort_req, self.active.side.on_drop(req))
        original(scheduler, abort_req, req)

    def retraction_order(self, original: Callable[..., list[int]], reqs: list[Req]) -> list[int]:
        """Wrap ``ScheduleBatch._get_decode_retraction_order``."""
        if self.active is None or self.active.admission.config.preemption.retraction == "sglang":
            return original(reqs)
        order = self.active.side.keep_order(reqs)
        if sorted(order) != list(range(len(reqs))):  # SGLang would retract a request twice, or one that is not there
            raise ValueError(f"an order of {len(reqs)} requests that names {order}")
        return order

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
        active = self.hooks.active
        if active is None:
            return info
        try:
            # What failed before it was made a request of the scheduler (multimodal receiver) never passed us.
            ours = [req.finished() and hasattr(req, "laps_sd") for req in reqs]
            if any(ours):
                info[META_KEY] = [
                    finished_fields(active.side, req) if mine else [] for req, mine in zip(reqs, ours, strict=True)
                ]
        except Exception as error:
            self.hooks.fall_back("build_additional_customized_info", error)
        return info


def finished_fields(side: SchedulerSide, req: Req) -> list[ResponseFields]:
    """Return what SGLang carries to the tokenizer process for a finished request: a list of one."""
    return [side.on_finish(req, cut=req.finished_reason.to_json()["type"] != "stop")]


def arrival_of(req: Req) -> float:
    """Place of a request in the order of arrival; those that came after the hooks stood down stay behind."""
    ours: SchedulerRequest | None = vars(req).get("laps_sd")
    return inf if ours is None else ours.arrival


def server_traits(spec: SpeculationOptions, execution: ExecutionOptions) -> ServerTraits:
    """Return what decides whether requests of this server can resume exactly."""
    return ServerTraits(
        speculative=spec.speculative_algorithm is not None,
        deterministic=execution.deterministic.enable_deterministic_inference,
        watermarks=execution.features.enable_watermark,
    )


def in_progress(req: Req) -> bool:
    """Return whether a step is the request's: not in a row that overlap scheduling had launched too early."""
    return not req.finished() and not req.is_retracted and req.beam_group is None


def in_flight(scheduler: Scheduler) -> list[Req]:
    """Return the requests that SGLang holds a slot for: decoding, just prefilled, or between two chunks of a prompt."""
    chunked = scheduler.chunked_req
    return [*scheduler.collect_inflight_reqs(), *([] if chunked is None else [chunked])]


def refining_of(launch: Launch, tokenizer: Tokenizer | None, parallel: ParallelOptions) -> Refining | None:
    """Return what refines lengths in flight and counts answers for the record; None where neither is wanted.

    It takes seconds: the table of token classes is made from the served model's tokenizer, by whose fingerprint it is
    known whether the bundle learned from such counts.
    """
    refiner = None
    if launch.refinement is not None:
        from laps_sd.predictors.progress.refiner import Refiner  # not above: a scheduler without it needs no LightGBM

        refiner = Refiner.load(Path(launch.refinement))
    if refiner is None and launch.config.record.path is None:
        return None
    classes = AnswerCounter(tokenizer).classes
    name = "nothing" if classes is None or refiner is None else f"{refiner.name} {classes.name}"
    alike = all_ranks_hold(name, parallel, shared_store, RANKS_START_WITHIN_S)
    if classes is None:
        logger.warning("laps-sd: this server has no tokenizer to count answers with; lengths are not refined")
        return None
    if refiner is not None and classes.name not in refiner.tables:
        logger.warning(
            "laps-sd: the bundle learned to refine lengths with another tokenizer (%s, here %s); lengths are predicted "
            "at arrival only. Train on records that `laps-sd collect --tokenizer` of this model made",
            ", ".join(refiner.tables), classes.name,
        )  # fmt: skip
    elif refiner is not None and not alike:
        logger.warning("laps-sd: not all ranks have the same bundle; lengths are predicted at arrival only")
        refiner = None
    return Refining(classes, refiner, launch.config.refinement.per_round)


def drafts_of(num_draft_tokens: int | None, spec: SpeculationOptions) -> int | None:
    """Return the most correct drafts of a step that verifies ``num_draft_tokens``; None without speculation."""
    return most_correct_drafts(
        spec.speculative_algorithm, num_draft_tokens, spec.speculative_num_steps, spec.speculative_eagle_topk
    )


#: The hooks of this process.
HOOKS = SchedulerHooks()
