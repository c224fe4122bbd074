"""LAPS-SD: least attained / perceived service in multi-level queues (arXiv 2505.17074, Algorithm 1), seeded.

This file decides who runs. Between queues: a request of a higher queue takes the slot of one of a lower queue. Inside
a queue: shortest perceived service first, without preemption. What a request's perceived service is says
`perceived_service.py`; who gives its slot away says `preemption.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from laps_sd.scheduler.policies.base import Policy, comparable, itself
from laps_sd.scheduler.policies.boost import Boost
from laps_sd.scheduler.policies.deadlines import Deadlines
from laps_sd.scheduler.policies.gathering import Gathering
from laps_sd.scheduler.policies.perceived_service import PerceivedService
from laps_sd.scheduler.policies.population import Population
from laps_sd.scheduler.policies.preemption import GainAgainstBill, LowerQueue
from laps_sd.scheduler.policies.queues import Queues
from laps_sd.scheduler.policies.running_order import VictimOrder
from laps_sd.scheduler.policies.sweep import Sweep
from laps_sd.scheduler.policies.waiting_order import RankedQueue, StateOf
from laps_sd.scheduler.refinement import Refinement
from laps_sd.scheduler.service import CostModel
from laps_sd.scheduler.settings import Settings
from laps_sd.scheduler.state import RequestState

#: Deadlines later than this (in rounds) are never: larger floats are no whole numbers any more.
_NEVER = 1e15
#: Before every client priority, behind those that end at once.
_BEFORE_PRIORITY = -1e300


class LapsSd(Policy):
    """The default policy; see docs/scheduler.md for the whole story and `Settings` for every constant."""

    name = "laps-sd"
    uses_predictions = True

    def __init__(self, settings: Settings | None = None, cost: CostModel | None = None, slots: int = 1) -> None:
        super().__init__(settings, cost, slots)
        s = self.settings
        self.preemptive = s.preemption
        self.population = Population(s)
        self.queues = Queues(s)
        self._waiting: dict[int, RequestState] = {}  # by arrival number
        self._ranked = RankedQueue()
        self._victims = VictimOrder()
        self._deadlines = Deadlines(self._waiting)
        self._sweep = Sweep()
        self._service = PerceivedService(s, self.population, self.prefill)
        self.boost = Boost(s, self.population, self.prefill, self._waiting)
        self._gathering = Gathering(self.population, self.prefill) if s.gather else None
        attained = s.index == "attained"
        rule = LowerQueue if attained else GainAgainstBill
        self._rule = rule(self, self._service, self._waiting)
        # The service that places a request in a queue, and its order inside it.
        self._placing = self._by_service if s.seeded else self._explored_first
        if attained:
            self._placing = self._by_attained if s.seeded else self._by_attained_explored_first

    @property
    def trust(self) -> float:
        """See `Policy.trust`."""
        return self.population.trust

    # --- the life of a request --------------------------------------------------------------------------------

    def start_round(self, rounds: int = 1) -> None:
        """See `Policy.start_round`."""
        super().start_round(rounds)
        self.boost.pass_rounds(rounds)
        # By counts and never by a clock, so that every rank does the same. A round admits no more than there are slots.
        pace = self.settings.places_per_round
        for state in islice(self._deadlines.due(self.now), max(pace, self.prefill.slots)):
            state.overdue = True
            self.place(state)
        for state in self._sweep.take(pace * rounds):
            self.place(state)

    def on_arrival(self, state: RequestState) -> None:
        """See `Policy.on_arrival`."""
        ours = not (state.hinted or state.runs_to_limit)  # else its length says nothing of our predictions
        if state.prediction is not None and self.settings.use_length and ours:
            length = state.prediction.length.mean(0, state.max_new_tokens)
            state.predicted_steps = length * state.posterior.steps_per_token()
        state.born = self.boost.born(self.settings.batch_delay if state.batch else 0.0)
        super().on_arrival(state)
        patience = self.settings.patience * max(state.perceived_service, self.settings.patience_floor)
        state.patience = int(min(patience, _NEVER))
        self._wait(state)
        self._follow_queue()

    def on_admit(self, state: RequestState) -> None:
        """See `Policy.on_admit`."""
        super().on_admit(state)
        state.patience = max(state.patience - (self.now - state.waiting_since), 0)
        self._leave(state)
        self.place(state)

    def on_step(self, state: RequestState, k: int, n: int, tokens: int) -> None:
        """See `Policy.on_step`."""
        state.on_step(k, n, tokens)
        self.population.observe_step(tokens, natural=not state.runs_to_limit)
        if state.steps % self.settings.refresh_steps == 0:
            self.population.observe_progress(state)
            self.place(state)

    def on_refine(self, state: RequestState, refinement: Refinement) -> None:
        """See `Policy.on_refine`."""
        if self.settings.refine and state.prediction is not None and self.settings.use_length:
            super().on_refine(state, refinement)

    def on_preempt(self, state: RequestState, cached_tokens: int = 0) -> None:
        """See `Policy.on_preempt`."""
        super().on_preempt(state, cached_tokens)
        self._victims.leave(state)
        self._wait(state)

    def on_finish(self, state: RequestState) -> None:
        """See `Policy.on_finish`."""
        super().on_finish(state)
        self._leave(state)
        self._learn(self.population.observe_finish, state)
        self._follow_queue()

    def on_abort(self, state: RequestState) -> None:
        """See `Policy.on_abort`."""
        super().on_abort(state)
        self._leave(state)
        if state.cut:
            self._learn(self.population.observe_cut, state)
        else:
            self.population.observe_departure(state)

    def _learn(self, observe: Callable[[RequestState], bool], state: RequestState) -> None:
        """Let the population learn from a request that left; when it is reviewed, places are outdated."""
        before = self.trust, self.population.acceptance.value
        if observe(state):
            now = self.trust, self.population.acceptance.value
            self._sweep.begin(everybody=now != before or before[0] < self.settings.lean_trust)

    def _follow_queue(self) -> None:
        """Let the boost follow the queue; places by different rates compare, those with and without one do not."""
        counted = self.boost.rate > 0
        if self.boost.follow() and counted != (self.boost.rate > 0):  # what a launch costs was just learned
            for state in self._waiting.values():
                self.place(state)

    def _wait(self, state: RequestState) -> None:
        self._waiting[state.arrival] = state
        self._sweep.add(state)
        if not state.overdue:
            state.deadline = self.now + state.patience + 1
            self._deadlines.add(state)

    def _leave(self, state: RequestState) -> None:
        self._waiting.pop(state.arrival, None)
        self._sweep.leave(state)
        self._ranked.leave(state)
        self._victims.leave(state)

    # --- Algorithm 1: queues, and the order inside a queue ------------------------------------------------------

    def place(self, state: RequestState) -> None:
        """Put the request into its queue, and into its place in it."""
        before = state.key
        state.perceived_service = comparable(self._service.of(state))
        service, order = self._placing(state)
        boosted = self.boost.rate > 0
        if boosted:
            service = self.discounted(state, state.perceived_service)
        state.queue = self.queues.of(service)
        # Who ends at once, then the client's priority, then who has waited too long; or that first, if it is so set.
        tier = 2 * state.tier - state.overdue
        if state.overdue and not state.ending and self.settings.patience_before_priority:
            tier = _BEFORE_PRIORITY
        if state.overdue:
            state.key = (tier, 0, float(state.deadline), state.arrival)
        elif boosted:
            # The order of discounted service at any moment; queues move on as everybody ages, this does not.
            state.key = (tier, 0, comparable(self.boost.place(order, state.born)), state.arrival)
        else:
            state.key = (tier, state.queue, order, state.arrival)
        if state.key != before:
            self._ranked.changed(state)
        if state.running:
            state.victim_rank = self._rule.rank(state)
            self._victims.put(state)

    def discounted(self, state: RequestState, service: float) -> float:
        """Return ``service`` as it counts now that the request has been here for some time."""
        counts = self.boost.discounted(service, state.born)
        return comparable(counts) if counts < _NEVER else counts

    def _by_service(self, state: RequestState) -> tuple[float, float]:
        """Seeded: perceived service places a request from its arrival on."""
        return state.perceived_service, state.perceived_service

    def _explored_first(self, state: RequestState) -> tuple[float, float]:
        """Unseeded: attained service sinks non-perceptible requests, in the order of their arrival."""
        return self._by_service(state) if self.perceptible(state) else (state.steps, 0.0)

    def _by_attained(self, state: RequestState) -> tuple[float, float]:
        """Queues over attained service, perceived service inside them."""
        return state.steps, state.perceived_service

    def _by_attained_explored_first(self, state: RequestState) -> tuple[float, float]:
        """The paper's own: the same, non-perceptible requests in the order of their arrival."""
        return state.steps, state.perceived_service if self.perceptible(state) else 0.0

    def rank(self, waiting: list[Any], state_of: StateOf = itself) -> Sequence[RequestState]:
        """See `Policy.rank`."""
        return self._ranked.sort(waiting, state_of)

    def victim(self, candidate: RequestState, running: Sequence[Any], state_of: StateOf = itself) -> Any | None:
        """Return who gives way: a running request of a lower queue, the one from which most is gained."""
        if not self.preemptive or candidate.ending:
            return None
        for state in self._rule.victims(candidate, self._victims, self.place):
            for item in running:
                if state_of(item) is state:
                    return item
        return None

    def gathers(self, front: RequestState, free: int, waiting: int, running: int) -> bool:
        """See `Policy.gathers`."""
        if self._gathering is None or front.overdue or front.ending:
            return False
        return self._gathering.holds(self.now, free, waiting, running)

    # --- KV memory --------------------------------------------------------------------------------------------

    def may_pass(self, blocked: RequestState) -> bool:
        """Lighter requests are tried, unless the blocked one has waited too long already."""
        return not blocked.overdue

    def work_left(self, state: RequestState) -> tuple[float, float]:
        """See `Policy.work_left`; of whom nothing was predicted, the lengths of all requests stand in."""
        tokens = self._service.tokens_to_end(state)
        return tokens, tokens * self._service.steps_per_token(state)

    def reserve_tokens(self, state: RequestState) -> int:
        """KV tokens for the quantile of the remaining length that the settings name; all where it is known exactly."""
        if state.runs_to_limit:
            return super().reserve_tokens(state)
        tokens = int(self._service.curve(state).quantile(self.settings.kv_quantile, state.generated)) + 1
        return min(tokens, super().reserve_tokens(state))
