"""The scheduler process's part: one policy object, one record per request, no SGLang import.

Requests are SGLang's ``Req`` objects, of which only plain attributes are read; ours hangs on each as ``req.laps_sd``.
Every tensor-parallel rank runs this for itself on the same requests: no clock and no random number enters an order.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from time import perf_counter
from typing import Literal

from laps_sd.scheduler import CostModel, Policy, RequestState, make_policy, new_request
from laps_sd.serving.engine import Req
from laps_sd.serving.monitoring.metrics import SchedulerMetrics
from laps_sd.serving.requests.exchange import Attachment, Measurements, ResponseFields
from laps_sd.serving.requests.refining import Refining
from laps_sd.serving.requests.resumption import ServerTraits, obstacle

#: Why a request lost its slot: a waiting one took it, took its KV tokens, or SGLang ran out of KV while decoding.
PreemptionReason = Literal["slots", "kv", "retraction"]

_LOOK_EVERY = 32  # rounds between two looks for running requests that are gone


@dataclass(slots=True, eq=False, weakref_slot=True)
class SchedulerRequest:
    """Our record of one request in the scheduler process; hangs on SGLang's ``Req`` as ``laps_sd``.

    Attributes
    ----------
    arrival : int
        Number in the order of arrival; SGLang re-stamps its own at every preemption.
    attachment : Attachment
        What the tokenizer process sent along.
    state : RequestState or None
        From the moment it first waits.
    refine_at : float
        Output length, tokens, at which its predicted length is refined next.
    step_tokens : int
        Tokens that its decode steps emitted (the prefill's first token is not among them).
    proposed : bool
        Whether any of its steps had drafts to verify.
    accept_lengths, draft_lengths : list of int
        Tokens of each verify step and drafts proposed in it; kept only for the record.
    slots : list of (float, float or None)
        From when to when it held a slot, seconds after it was received; kept only for the record.
    ended : bool
        SGLang is done with it, and the policy was told.
    received_s, queue_s, ttft_s : float or None
        Seconds on this process's clock, and waits after it; for the record, never for a rank.
    """

    arrival: int
    attachment: Attachment
    state: RequestState | None = None
    refine_at: float = inf
    step_tokens: int = 0
    proposed: bool = False
    ended: bool = False
    accept_lengths: list[int] = field(default_factory=list)
    draft_lengths: list[int] = field(default_factory=list)
    received_s: float = field(default_factory=perf_counter)
    slots: list[tuple[float, float | None]] = field(default_factory=list)
    queue_s: float | None = None
    ttft_s: float | None = None


class SchedulerSide:
    """Keep the policy informed of what SGLang does, and SGLang's queue in the policy's order.

    Parameters
    ----------
    policy : Policy
        Ranks and picks victims.
    max_correct_drafts : int or None
        Most drafts a verify step can accept at launch; None without speculation.
    low_priority_first : bool
        ``--schedule-low-priority-values-first``: a smaller ``priority`` field goes first.
    keep_steps : bool
        Keep the accept length of every step, for the record.
    traits : ServerTraits, optional
        Whether requests that lost their slot can resume exactly on this server.
    in_flight : callable, optional
        Gives the requests that the engine holds a slot for. Without it those that it drops are never forgotten.
    metrics : SchedulerMetrics, optional
        Where to count.
    refining : Refining, optional
        Corrects predicted lengths by what was said so far, and counts answers for the record.
    cost : callable, optional
        Gives what steps and prefills cost here, None while that is not known; for the metrics, never for an order.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        max_correct_drafts: int | None = None,
        low_priority_first: bool = False,
        keep_steps: bool = False,
        traits: ServerTraits | None = None,
        in_flight: Callable[[], Iterable[Req]] | None = None,
        metrics: SchedulerMetrics | None = None,
        refining: Refining | None = None,
        cost: Callable[[], CostModel | None] = lambda: None,
    ) -> None:
        self.policy = policy
        self._refining = refining
        self._max_correct_drafts = max_correct_drafts
        self._priority_sign = -1 if low_priority_first else 1
        self._keep_steps = keep_steps
        self._traits = traits or ServerTraits()
        self._in_flight = in_flight
        self._metrics = metrics
        self._cost = cost
        self._arrivals = 0
        # By arrival number: those that SGLang has in its queue or in a slot, and for a while those that it dropped.
        self._waiting: dict[int, RequestState] = {}
        self._running: dict[int, RequestState] = {}
        self._missed: set[int] = set()  # running ones that SGLang did not have at the last look

    # --- the life of a request --------------------------------------------------------------------------------

    def on_received(self, req: Req, attachment: Attachment) -> None:
        """Give a request that was received the next arrival number."""
        self._arrivals += 1
        req.laps_sd = SchedulerRequest(self._arrivals, attachment)
        if attachment.prediction is not None:
            attachment.prediction.length.gittins()  # fills the curve's tables here instead of in a scheduling round

    def state_of(self, req: Req) -> RequestState:
        """Return the state of a request, made when it first waits: only then are its prompt and its cap final."""
        ours: SchedulerRequest = req.laps_sd
        if ours.state is None:
            ours.state = new_request(
                ours.arrival,
                len(req.origin_input_ids),
                settings=self.policy.settings,
                prediction=ours.attachment.prediction,
                hinted=ours.attachment.hinted,
                batch=ours.attachment.batch,
                max_new_tokens=req.sampling_params.max_new_tokens,
                runs_to_limit=_only_its_limit_ends(req),
                priority=ours.attachment.priority if req.priority is None else self._priority_sign * req.priority,
                cached_tokens=req.num_matched_prefix_tokens,
                max_correct_drafts=self._max_correct_drafts,
            )
            knows = ours.attachment.prediction is not None and not ours.attachment.hinted
            if self._refining is not None and knows and not ours.state.runs_to_limit:
                ours.refine_at = self._refining.next_after(0)
        return ours.state

    def rank(self, queue: list[Req]) -> None:
        """Sort SGLang's waiting queue in place; a scheduling round begins."""
        started = perf_counter()
        self.policy.start_round()
        if self._refining is not None:
            refined = self._refining.refine_some(self.policy)
            if refined and self._metrics is not None:
                self._metrics.refined(refined)
        for state in self.policy.rank(queue, self._waiting_state):
            if self._waiting.pop(state.arrival, None) is not None:  # aborted in the queue: SGLang tells nobody
                self.policy.on_abort(state)
        if len(queue) != len(self._waiting):
            self._forget_vanished(queue)
        if self.policy.now % _LOOK_EVERY == 0:
            self._forget_dropped()
        if self._metrics is not None:
            self._metrics.ranked(perf_counter() - started)
            if self._metrics.due():
                self._show(self._metrics)

    def on_admit(self, req: Req) -> None:
        """Note that the request got a slot; ``req.prefix_len`` of its context is cached."""
        state = self.state_of(req)
        state.generated = len(req.output_ids)
        state.cached_tokens = min(req.prefix_len, state.context_tokens)
        self._waiting.pop(state.arrival, None)
        self._running[state.arrival] = state
        before = state.recomputed_tokens
        ours: SchedulerRequest = req.laps_sd
        if ours.queue_s is None:  # its first slot: all that decides whether it can resume is known, and stays
            state.resumable = obstacle(req, self._traits) is None
        self.policy.on_admit(state)
        since = perf_counter() - ours.received_s
        if ours.queue_s is None:
            ours.queue_s = since
        if self._keep_steps and (not ours.slots or ours.slots[-1][1] is not None):
            ours.slots.append((since, None))
        if self._metrics is not None:
            self._metrics.recomputed(state.recomputed_tokens - before)

    def on_preempt(self, req: Req, cached_tokens: int, reason: PreemptionReason) -> None:
        """Note that the request lost its slot, by us or retracted; ``cached_tokens`` of its context stay cached."""
        state = self.state_of(req)
        state.generated = len(req.output_ids)
        state.ending = req.to_finish is not None
        self.policy.on_preempt(state, cached_tokens)
        self._running.pop(state.arrival, None)
        self._waiting[state.arrival] = state
        ours: SchedulerRequest = req.laps_sd
        if ours.slots:
            ours.slots[-1] = (ours.slots[-1][0], perf_counter() - ours.received_s)
        if self._metrics is not None:
            self._metrics.preempted(reason)

    def on_step(self, req: Req, correct: int, proposed: int, tokens: int) -> None:
        """Learn from one verify step (plain decode step: 0 of 0) that is about to append ``tokens`` tokens.

        Those past its limit are not counted: SGLang drops them.
        """
        ours: SchedulerRequest = req.laps_sd
        state = self.state_of(req)
        state.generated = len(req.output_ids)  # the prefill's first token comes without a step
        if state.max_new_tokens is not None:
            tokens = min(tokens, state.limit_left)
        ours.step_tokens += tokens
        ours.proposed = ours.proposed or proposed > 0
        if ours.ttft_s is None:  # SGLang stamps the end of the first prefill, on the same clock
            ours.ttft_s = max(req.time_stats.prefill_finished_time - ours.received_s, 0.0)
        if self._keep_steps:
            ours.accept_lengths.append(correct + 1)
            ours.draft_lengths.append(proposed)
        self.policy.on_step(state, correct, proposed, tokens)
        if state.generated >= ours.refine_at:
            self._note_due(req, state)

    def _note_due(self, req: Req, state: RequestState) -> None:
        """Let the length of a request that has passed a checkpoint be refined in a round to come."""
        ours: SchedulerRequest = req.laps_sd
        if self._refining is not None and ours.attachment.prediction is not None:
            self._refining.note(req, state, ours.attachment.prediction.length)
            ours.refine_at = self._refining.next_after(state.generated)

    def on_finish(self, req: Req, *, cut: bool) -> ResponseFields:
        """Forget a request that ended, by itself or ``cut`` (limit, abort); return its fields for the response."""
        ours: SchedulerRequest = req.laps_sd
        state = self.state_of(req)
        kept = len(req.output_ids_through_stop)
        ours.step_tokens -= max(state.generated - kept, 0)  # what a verify step accepted past the end
        state.generated = kept
        self._waiting.pop(state.arrival, None)
        self._running.pop(state.arrival, None)
        self._refine_no_more(state.arrival)
        if not ours.ended:
            ours.ended = True
            if cut:
                self.policy.on_abort(state)
            else:
                self.policy.on_finish(state)
                if self._metrics is not None and state.refinements:
                    self._metrics.refined_errors(state)
        if self._metrics is not None and not (self._waiting or self._running):
            self._show(self._metrics)  # nobody ranks an empty queue, and the gauges would keep what they said last
        fields = _response_fields(ours, state)
        if self._keep_steps:
            fields["measured"] = _measurements(ours, state)
            if self._refining is not None:
                fields["measured"]["progress"], fields["measured"]["progress_table"] = self._refining.recorded(req)
        return fields

    def on_drop(self, req: Req) -> ResponseFields:
        """SGLang ends the request without an answer: aborted or rejected while it waited, no KV memory even alone."""
        fields = self.on_finish(req, cut=True)
        fields.pop("measured", None)
        return fields

    def _refine_no_more(self, arrival: int) -> None:
        if self._refining is not None:
            self._refining.forget(arrival)

    def _waiting_state(self, req: Req) -> RequestState:
        state = self.state_of(req)
        if state.arrival not in self._waiting:
            if state.running:  # SGLang retracted it by itself
                self.on_preempt(req, 0, "retraction")
            else:
                state.ending = req.to_finish is not None
                self.policy.on_arrival(state)
                self._waiting[state.arrival] = state
        return state

    def _forget_vanished(self, queue: Sequence[Req]) -> None:
        """Forget what was aborted in the queue, where the policy did not notice it."""
        here = {req.laps_sd.arrival for req in queue}
        for arrival in [number for number in self._waiting if number not in here]:
            self._refine_no_more(arrival)
            self.policy.on_abort(self._waiting.pop(arrival))

    def _forget_dropped(self) -> None:
        """Forget what ended in its slot without an answer: no KV memory even alone, aborted between two chunks.

        Only what was missed at two looks: under overlap scheduling a request may be between two batches.
        """
        if self._in_flight is None:
            return
        here = {req.laps_sd.arrival for req in self._in_flight()}
        missed = {arrival for arrival in self._running if arrival not in here}
        for arrival in sorted(missed & self._missed):
            self._refine_no_more(arrival)
            self.policy.on_abort(self._running.pop(arrival))
        self._missed = missed & self._running.keys()

    def _show(self, metrics: SchedulerMetrics) -> None:
        phases = {"waiting": list(self._waiting.values()), "running": list(self._running.values())}
        metrics.show(phases, self.policy, self._cost())

    def stand_down(self, hook: str) -> None:
        """Our hook of this name failed, and the policy is asked no more: forget every request, and say so."""
        self._waiting.clear()
        self._running.clear()
        self._missed.clear()
        self.policy = make_policy("fcfs")  # a new one knows nobody: the old one holds every request that waited
        if self._refining is not None:
            self._refining.clear()
        if self._metrics is not None:
            self._metrics.fell_back(hook)

    # --- questions --------------------------------------------------------------------------------------------

    def plans_by_prediction(self, req: Req) -> bool:
        """Whether the policy knows better than SGLang how much the request has still to produce."""
        ours: SchedulerRequest = req.laps_sd
        known = ours.attachment.prediction is not None or self.state_of(req).runs_to_limit
        return self.policy.uses_predictions and known

    def may_lose_slot(self, req: Req) -> bool:
        """Whether the running request may be preempted: it is not about to end, and can resume exactly."""
        # A finished request may still be in the batch with its KV freed: taking it would free that twice.
        return not req.finished() and req.to_finish is None and self.state_of(req).resumable

    def gathers(self, front: Req, running: int) -> bool:
        """Whether free slots stay empty for now, so that more of them are filled by one prefill launch.

        Asked when nothing is being prefilled and ``front`` would be admitted.
        """
        free = self.policy.prefill.slots - running
        return free > 0 and self.policy.gathers(self.state_of(front), free, len(self._waiting), running)

    def victim(self, candidate: Req, running: Sequence[Req], *, launching: bool = False) -> Req | None:
        """Return the running request that gives way to ``candidate``, or None.

        Parameters
        ----------
        launching : bool
            A prefill runs after this round in any case.
        """
        self.policy.engine.launching = launching
        return self.policy.victim(self.state_of(candidate), running, self.state_of)

    def may_pass(self, blocked: Req) -> bool:
        """Whether requests behind ``blocked``, for which there is no KV room, may be tried."""
        return self.policy.may_pass(self.state_of(blocked))

    def reserve_tokens(self, req: Req) -> int:
        """Return the KV tokens that admission keeps free for what a running request has still to produce."""
        state = self.state_of(req)
        state.generated = len(req.output_ids)
        return self.policy.reserve_tokens(state)

    def keep_order(self, reqs: Sequence[Req]) -> list[int]:
        """Return the indices of running requests, the one to keep first: retraction takes from the end.

        Who is about to end is kept first, then who cannot resume exactly; the policy decides about the rest.
        """
        for req in reqs:
            self.policy.place(self.state_of(req))
        states = [self.state_of(req) for req in reqs]
        return sorted(range(len(reqs)), key=lambda i: (reqs[i].to_finish is None, states[i].resumable, states[i].key))


def _only_its_limit_ends(req: Req) -> bool:
    """Whether the answer goes on until its limit, whatever the model says."""
    params = req.sampling_params
    return bool(params.ignore_eos and not params.stop_strs and not params.stop_regex_strs and req.grammar is None)


def _response_fields(ours: SchedulerRequest, state: RequestState) -> ResponseFields:
    """Return the per-request fields of the response; None where there is nothing to say."""
    prediction = ours.attachment.prediction
    tokens = None if prediction is None else prediction.length.mean(0, state.max_new_tokens)
    return {
        "predicted_tokens": state.max_new_tokens if state.runs_to_limit else tokens,
        "predicted_accept_length": None if prediction is None else prediction.accept_length,
        "accept_length": ours.step_tokens / state.steps if ours.proposed else None,
        "steps": state.steps,
        "level": state.queue,
        "preemptions": state.preemptions,
        "recomputed_tokens": state.recomputed_tokens,
        "priority": state.priority,
        "refinements": len(state.refinements),
        "refined_tokens": _refined_tokens(state),
    }


def _refined_tokens(state: RequestState) -> float | None:
    """Return the output length expected at its last refinement, under its limit; None where there was none."""
    if not state.refinements:
        return None
    last = state.refinements[-1]
    return last.at + last.left(state.max_new_tokens)


def _measurements(ours: SchedulerRequest, state: RequestState) -> Measurements:
    """Return what only this process knows of a finished request, for its record."""
    measured: Measurements = {
        "queue_s": ours.queue_s,
        "ttft_s": ours.ttft_s,
        # SGLang warms the prefix of several samples (n > 1) with a copy whose limit is 0: only here is that seen.
        "max_new_tokens": state.max_new_tokens,
        "slots": ours.slots,
    }
    if ours.proposed:
        histogram = [0] * max(ours.accept_lengths)
        for accepted in ours.accept_lengths:
            histogram[accepted - 1] += 1
        measured["correct_drafts_histogram"] = histogram
        measured["accept_lengths"] = ours.accept_lengths
        measured["draft_lengths"] = ours.draft_lengths
    return measured
