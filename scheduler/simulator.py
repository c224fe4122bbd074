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
from laps_sd.scheduler.policy import Policy
from laps_sd.scheduler.simulator_machine import Machine, SimulationResult
from laps_sd.scheduler.simulator_memory import KvPool
from laps_sd.scheduler.simulator_trace import Timeline
from laps_sd.scheduler.state import RequestState, new_request
from laps_sd.scheduler.workload import ReplayRequest

#: Requests without KV room that a round passes over before it gives up: the queue may be long, a round may not.
MOST_PASSED = 64

__all__ = ["Machine", "SimulationResult", "simulate"]


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
        self._kv = KvPool(machine.kv_tokens)
        self._taken = 0  # KV tokens held and expected, where they are limited
        self._clock = 0.0
        self._arrived = 0
        self._waiting: list[RequestState] = []
        self._running: list[RequestState] = []  # decoding
        self._prefilling: list[tuple[RequestState, int]] = []  # admitted, with the tokens still to compute
        self._first_token: list[float | None] = [None] * len(requests)
        self._outcomes: list[RequestOutcome | None] = [None] * len(requests)
        self._rank_us: list[float] = []
        self._timeline = Timeline()

    def run(self) -> SimulationResult:
        while self._arrived < len(self._requests) or self._waiting or self._running or self._prefilling:
            self._take_arrivals()
            if self._waiting:
                self._schedule()
            self._timeline.note(self._clock, len(self._waiting), len(self._running) + len(self._prefilling))
            if self._prefilling:
                self._prefill()
            elif self._running:
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
            )
            self._policy.on_arrival(state)
            self._waiting.append(state)
            self._arrived += 1

    def _schedule(self) -> None:
        """Admit in the policy's order, and let running requests give way where the policy says so."""
        if self._full and not self._policy.preemptive:
            return
        began = perf_counter()
        self._policy.rank(self._waiting)
        self._taken = self._expected_kv()
        passed: list[RequestState] = []
        displaced: list[RequestState] = []
        room = self._machine.chunk_tokens - sum(tokens for _, tokens in self._prefilling)
        position = 0
        while position < len(self._waiting) and room > 0:
            candidate = self._waiting[position]
            victims = self._victims_for(candidate)
            if victims is None:
                if self._full or len(passed) == MOST_PASSED or not self._policy.may_pass(candidate):
                    break
                passed.append(candidate)
                position += 1
                continue
            for victim in victims:
                self._preempt(victim, keep=self._machine.keep_kv)
            displaced += victims
            position += 1
            room -= self._admit(candidate)
        self._waiting = passed + self._waiting[position:] + displaced
        self._rank_us.append((perf_counter() - began) * 1e6)

    @property
    def _full(self) -> bool:
        return len(self._running) + len(self._prefilling) >= self._machine.slots

    def _victims_for(self, candidate: RequestState) -> list[RequestState] | None:
        """Who must give way so that the candidate gets a slot and its KV tokens; None when they will not."""
        others = self._running
        victims: list[RequestState] = []
        slot_needed = self._full
        while slot_needed or not self._fits(candidate, victims):
            victim = self._policy.victim(candidate, others) if others else None
            if victim is None:
                return None
            slot_needed = False
            victims.append(victim)
            others = [s for s in others if s is not victim]
        return victims

    def _fits(self, candidate: RequestState, victims: Sequence[RequestState]) -> bool:
        """Whether KV tokens suffice for what requests hold and for what the policy expects them to produce."""
        if self._machine.kv_tokens is None:
            return True
        if len(victims) == len(self._running) and not self._prefilling:
            return True  # alone on the machine it runs as far as it gets
        freed = sum(map(self._kv_of, victims))
        return self._taken - freed + self._kv_of(candidate) <= self._kv.capacity

    def _kv_of(self, state: RequestState) -> int:
        return state.context_tokens + self._policy.reserve_tokens(state)

    def _expected_kv(self) -> int:
        if self._machine.kv_tokens is None:
            return 0
        return sum(map(self._kv_of, (*self._running, *(state for state, _ in self._prefilling))))

    def _admit(self, state: RequestState) -> int:
        """Give the request a slot; return the tokens that its prefill computes."""
        if state.context_tokens + 1 > self._kv.free:
            self._end(state, finished=False)
            return 0
        if self._machine.kv_tokens is not None:
            self._taken += self._kv_of(state)
        self._kv.reclaim(state)
        # The last token is always computed: its logits are what goes on.
        state.cached_tokens = max(min(state.cached_tokens, state.context_tokens - 1), 0)
        tokens = state.prefill_tokens
        self._kv.hold(state.context_tokens)
        self._policy.on_admit(state)
        self._prefilling.append((state, tokens))
        return tokens

    def _preempt(self, state: RequestState, *, keep: bool) -> None:
        if self._machine.kv_tokens is not None:
            self._taken -= self._kv_of(state)
        self._running.remove(state)
        self._kv.release(state.context_tokens)
        self._policy.on_preempt(state, state.context_tokens if keep else state.prompt_tokens)
        self._kv.leave(state)

    # --- work that takes time --------------------------------------------------------------------------------

    def _prefill(self) -> None:
        """Compute one chunk: the request begun earlier first, then the newly admitted."""
        room = self._machine.chunk_tokens
        done: list[RequestState] = []
        left: list[tuple[RequestState, int]] = []
        for state, tokens in self._prefilling:
            now = min(tokens, room)
            room -= now
            if now == tokens:
                done.append(state)
            else:
                left.append((state, tokens - now))
        self._prefilling = left
        seconds = self._machine.cost.prefill(self._machine.chunk_tokens - room)
        if seconds > 0:
            self._policy.start_round()
        self._clock += seconds
        for state in done:
            self._begin_decoding(state)

    def _begin_decoding(self, state: RequestState) -> None:
        request = self._requests[state.arrival]
        if state.steps == 0 and state.generated == 0 and request.first_tokens:
            self._first_token[state.arrival] = self._clock
            state.generated = request.first_tokens
            self._kv.hold(request.first_tokens)
        if state.steps == request.steps:
            self._end(state, finished=True)
        else:
            self._running.append(state)

    def _decode(self) -> None:
        """Make verify steps: one, or as many as pass before anything could be decided otherwise."""
        if self._machine.kv_tokens is not None and not self._make_room():
            return
        steps = self._steps_until_decision()
        tau = self._machine.cost.tau(len(self._running))
        began = self._clock
        self._clock += steps * tau
        self._policy.start_round(steps)
        ended: list[RequestState] = []
        produced = 0
        on_step = self._policy.on_step
        for state in self._running:
            request = self._requests[state.arrival]
            if self._first_token[state.arrival] is None:
                self._first_token[state.arrival] = began + tau
            accept_lengths, drafts = request.accept_lengths, request.draft_lengths
            for step in range(state.steps, state.steps + steps):
                tokens = accept_lengths[step]
                produced += tokens
                on_step(state, tokens - 1, request.max_correct_drafts if drafts is None else drafts[step], tokens)
            if state.steps == len(accept_lengths):
                ended.append(state)
        self._kv.hold(produced)
        if ended:
            for state in ended:
                self._end(state, finished=True)
            self._running = [s for s in self._running if self._outcomes[s.arrival] is None]

    def _steps_until_decision(self) -> int:
        """Verify steps in which nothing can change: nobody arrives, ends, or could be admitted."""
        if self._machine.kv_tokens is not None or (self._waiting and not (self._full and not self._policy.preemptive)):
            return 1
        steps = min(self._requests[s.arrival].steps - s.steps for s in self._running)
        if self._arrived < len(self._requests):
            until = self._requests[self._arrived].arrival_s - self._clock
            steps = min(steps, max(ceil(until / self._machine.cost.tau(len(self._running))), 1))
        return steps

    def _make_room(self) -> bool:
        """Retract requests, last in the policy's order first, until the next verify step of the others fits.

        Returns False when nobody is left to decode.
        """
        while self._running:
            if sum(self._requests[s.arrival].drafts(s.steps) + 1 for s in self._running) <= self._kv.free:
                return True
            last = max(self._running, key=lambda s: s.key)
            if len(self._running) == 1:
                self._running.remove(last)
                self._end(last, finished=False)
            else:
                self._preempt(last, keep=False)
                self._waiting.append(last)
        return False

    def _end(self, state: RequestState, *, finished: bool) -> None:
        request = self._requests[state.arrival]
        if state.running:
            self._kv.release(state.context_tokens)
        self._policy.on_finish(state)
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
