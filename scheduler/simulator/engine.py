"""Replay requests through a policy on a simulated machine, verify step by verify step.

The loop is SGLang's: in each iteration the waiting requests are ranked, those that get a slot are prefilled (before
anybody decodes, in chunks), and otherwise every running request makes one verify step. The policy and the request
states are the objects that rank requests inside SGLang; only the machine is simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from time import perf_counter

from laps_sd.scheduler.outcomes import RequestOutcome
from laps_sd.scheduler.policies.base import Policy
from laps_sd.scheduler.simulator.machine import Machine
from laps_sd.scheduler.simulator.result import SimulationResult, Timeline
from laps_sd.scheduler.simulator.slots import Slots
from laps_sd.scheduler.simulator.workload import ReplayRequest
from laps_sd.scheduler.state import RequestState, new_request

#: Requests without KV room that a round passes over before it gives up: the queue may be long, a round may not.
MOST_PASSED = 64


def simulate(
    requests: Sequence[ReplayRequest],
    policy: Policy,
    machine: Machine,
    *,
    progress: Callable[[int], None] | None = None,
) -> SimulationResult:
    """Replay ``requests`` through ``policy``, which must be fresh.

    Parameters
    ----------
    progress : callable, optional
        Called with the number of requests that ended since the last call.
    """
    return _Simulation(requests, policy, machine, progress).run()


class _Simulation:
    """One replay. A request is its arrival number: the index into what is known of it."""

    def __init__(
        self,
        requests: Sequence[ReplayRequest],
        policy: Policy,
        machine: Machine,
        progress: Callable[[int], None] | None,
    ) -> None:
        self._requests = sorted(requests, key=lambda r: r.arrival_s)
        self._policy, self._machine = policy, machine
        self._progress = progress
        self._slots = Slots(machine, policy)
        policy.engine.keeps_kv = machine.keep_kv
        self._clock = 0.0
        self._arrived = 0
        self._waiting: list[RequestState] = []
        self._first_token: list[float | None] = [None] * len(requests)
        self._outcomes: list[RequestOutcome | None] = [None] * len(requests)
        self._refined: dict[int, int] = {}  # by arrival number, how many of its refinements were told
        self._rank_us: list[float] = []
        self._timeline = Timeline()

    def run(self) -> SimulationResult:
        slots = self._slots
        while self._arrived < len(self._requests) or self._waiting or slots.taken:
            self._take_arrivals()
            if self._waiting:
                self._schedule()
            self._timeline.note(self._clock, len(self._waiting), slots.taken)
            if slots.prefilling:
                self._prefill()
            elif slots.running:
                self._decode()
            elif self._arrived < len(self._requests):
                self._clock = max(self._clock, self._requests[self._arrived].arrival_s)
        outcomes = [o for o in self._outcomes if o is not None]
        return SimulationResult(outcomes, self._rank_us, self._timeline)

    # --- arrivals and admission ------------------------------------------------------------------------------

    def _take_arrivals(self) -> None:
        while self._arrived < len(self._requests) and self._requests[self._arrived].arrival_s <= self._clock:
            request = self._requests[self._arrived]
            state = new_request(
                self._arrived,
                request.prompt_tokens,
                settings=self._policy.settings,
                prediction=request.prediction,
                max_new_tokens=request.max_new_tokens,
                priority=request.priority,
                max_correct_drafts=request.max_correct_drafts,
                true_steps=request.steps,
                cached_tokens=request.cached_tokens,
            )
            self._policy.on_arrival(state)
            self._waiting.append(state)
            self._arrived += 1

    def _schedule(self) -> None:
        """Admit in the policy's order, and let running requests give way where the policy says so."""
        slots = self._slots
        if slots.full and not self._policy.preemptive:
            return
        began = perf_counter()
        self._policy.rank(self._waiting)
        if self._gathers():
            self._rank_us.append((perf_counter() - began) * 1e6)
            return
        slots.count_expected()
        passed: list[RequestState] = []
        displaced: list[RequestState] = []
        room = self._machine.chunk_tokens - sum(tokens for _, tokens in slots.prefilling)
        position = 0
        while position < len(self._waiting) and room > 0:
            candidate = self._waiting[position]
            self._policy.engine.launching = bool(slots.prefilling)
            victims = slots.victims_for(candidate)
            if victims is None:
                if slots.full or len(passed) == MOST_PASSED or not self._policy.may_pass(candidate):
                    break
                passed.append(candidate)
                position += 1
                continue
            for victim in victims:
                slots.preempt(victim, keep=self._machine.keep_kv)
            displaced += victims
            position += 1
            if slots.can_hold(candidate):
                room -= slots.admit(candidate)
            else:
                self._end(candidate, finished=False)
        self._waiting = passed + self._waiting[position:] + displaced
        self._rank_us.append((perf_counter() - began) * 1e6)

    def _gathers(self) -> bool:
        """Whether the policy leaves the free slots empty, so that more of them are filled together."""
        slots = self._slots
        free = self._machine.slots - slots.taken
        if free == 0 or slots.prefilling or not slots.running:
            return False
        return self._policy.gathers(self._waiting[0], free, len(self._waiting), len(slots.running))

    # --- work that takes time --------------------------------------------------------------------------------

    def _prefill(self) -> None:
        """Compute one chunk: the request begun earlier first, then the newly admitted."""
        room = self._machine.chunk_tokens
        done: list[RequestState] = []
        left: list[tuple[RequestState, int]] = []
        for state, tokens in self._slots.prefilling:
            now = min(tokens, room)
            room -= now
            if now == tokens:
                done.append(state)
            else:
                left.append((state, tokens - now))
        self._slots.prefilling = left
        seconds = self._machine.cost.prefill(self._machine.chunk_tokens - room)
        if seconds > 0:
            self._policy.start_round()
        self._clock += seconds
        for state in done:
            self._begin_decoding(state)

    def _begin_decoding(self, state: RequestState) -> None:
        request = self._requests[state.arrival]
        if state.steps == 0 and state.generated == 0 and request.first_tokens:
            while request.first_tokens > self._slots.kv.free and self._slots.running:
                self._retract_last()
            if request.first_tokens > self._slots.kv.free:
                self._end(state, finished=False)
                return
            self._first_token[state.arrival] = self._clock
            state.generated = request.first_tokens
            self._slots.kv.hold(request.first_tokens)
        if state.steps == request.steps:
            self._end(state, finished=True)
        else:
            self._slots.running.append(state)

    def _decode(self) -> None:
        """Make verify steps: one, or as many as pass before anything could be decided otherwise."""
        if self._machine.kv_tokens is not None and not self._make_room():
            return
        slots = self._slots
        steps = self._steps_until_decision()
        tau = self._machine.cost.tau(len(slots.running))
        began = self._clock
        self._clock += steps * tau
        self._policy.start_round(steps)
        ended: list[RequestState] = []
        produced = 0
        on_step = self._policy.on_step
        for state in slots.running:
            request = self._requests[state.arrival]
            if self._first_token[state.arrival] is None:
                self._first_token[state.arrival] = began + tau
            accept_lengths, drafts = request.accept_lengths, request.draft_lengths
            for step in range(state.steps, state.steps + steps):
                tokens = accept_lengths[step]
                produced += tokens
                on_step(state, tokens - 1, request.max_correct_drafts if drafts is None else drafts[step], tokens)
                if request.refinements:
                    self._refine(state, request)
            if state.steps == len(accept_lengths):
                ended.append(state)
        slots.kv.hold(produced)
        for state in ended:
            self._end(state, finished=True)
        if ended:
            slots.running = [s for s in slots.running if self._outcomes[s.arrival] is None]

    def _refine(self, state: RequestState, request: ReplayRequest) -> None:
        """Tell the policy what the tokens so far say, of a request that goes on."""
        place = self._refined.get(state.arrival, 0)
        while place < len(request.refinements) and request.refinements[place].at <= state.generated:
            if state.generated < request.output_tokens:
                self._policy.on_refine(state, request.refinements[place])
            place += 1
            self._refined[state.arrival] = place

    def _steps_until_decision(self) -> int:
        """Verify steps in which nothing can change: nobody arrives, ends, or could be admitted."""
        running = self._slots.running
        may_admit = self._waiting and (self._policy.preemptive or not self._slots.full)
        if self._machine.kv_tokens is not None or may_admit:
            return 1
        steps = min(self._requests[s.arrival].steps - s.steps for s in running)
        if self._arrived < len(self._requests):
            until = self._requests[self._arrived].arrival_s - self._clock
            steps = min(steps, max(ceil(until / self._machine.cost.tau(len(running))), 1))
        return steps

    def _make_room(self) -> bool:
        """Retract the policy's last request until the next verify step fits; False when nobody is left to decode."""
        running = self._slots.running
        while running:
            if sum(self._requests[s.arrival].drafts(s.steps) + 1 for s in running) <= self._slots.kv.free:
                return True
            if len(running) > 1:
                self._retract_last()
            else:
                self._end(running.pop(), finished=False)
        return False

    def _retract_last(self) -> None:
        last = max(self._slots.running, key=lambda s: s.key)
        self._slots.preempt(last, keep=False)
        self._waiting.append(last)

    def _end(self, state: RequestState, *, finished: bool) -> None:
        request = self._requests[state.arrival]
        if state.running:
            self._slots.kv.release(state.context_tokens)
        if finished:
            self._policy.on_finish(state)
        else:  # it did not end by itself: nothing to learn about lengths but that it got so far
            self._policy.on_abort(state)
        self._outcomes[state.arrival] = RequestOutcome(
            request_id=request.request_id,
            arrival_s=request.arrival_s,
            first_token_s=self._first_token[state.arrival],
            finish_s=self._clock if finished else None,
            output_tokens=state.generated,
            service_s=self._machine.service_s(request),
            preemptions=state.preemptions,
            recomputed_tokens=state.recomputed_tokens,
        )
        if self._progress is not None:
            self._progress(1)
