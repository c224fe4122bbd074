"""LAPS-SD: least attained / perceived service in multi-level queues (arXiv 2505.17074, Algorithm 1), seeded.

This file decides who runs. Between queues: a request of a higher queue takes the slot of one of a lower queue. Inside
a queue: shortest perceived service first, without preemption. What a request's perceived service is follows from its
predicted length, conditioned on the tokens produced, and its acceptance posterior.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate, islice, repeat
from math import inf
from operator import mul
from typing import Any

from laps_sd.scheduler.policies.base import Policy, itself
from laps_sd.scheduler.policies.deadlines import Deadlines
from laps_sd.scheduler.policies.population import Population
from laps_sd.scheduler.policies.running_order import VictimOrder
from laps_sd.scheduler.policies.waiting_order import RankedQueue, StateOf
from laps_sd.scheduler.service import CostModel
from laps_sd.scheduler.settings import Settings
from laps_sd.scheduler.state import RequestState
from laps_sd.scheduler.survival import SurvivalCurve

_OWN_STEPS = 16  # verify steps after which a request's own acceptance counts as much as that of all requests

_TRIES = 4  # running requests whose place is computed anew before the candidate is told to wait
_LOOKS = 32  # and those that are looked at: asking what one would cost is cheap


class LapsSd(Policy):
    """The default policy; see docs/scheduler.md for the whole story and `Settings` for every constant."""

    name = "laps-sd"
    uses_predictions = True

    def __init__(self, settings: Settings | None = None, cost: CostModel | None = None, slots: int = 1) -> None:
        super().__init__(settings, cost, slots)
        self.preemptive = self.settings.preemption
        self.population = Population(self.settings)
        self._waiting: dict[int, RequestState] = {}  # by arrival number
        self._ranked = RankedQueue()
        self._victims = VictimOrder()
        self._deadlines = Deadlines(self._waiting)
        factors = repeat(self.settings.factor, self.settings.levels - 1)
        self._thresholds = list(accumulate(factors, mul, initial=self.settings.first_threshold))[:-1]

    # --- the life of a request --------------------------------------------------------------------------------

    def start_round(self, rounds: int = 1) -> None:
        super().start_round(rounds)
        for state in self._deadlines.due(self.now):
            state.overdue = True
            self.place(state)

    def on_arrival(self, state: RequestState) -> None:
        ours = not (state.hinted or state.runs_to_limit)  # else its length says nothing of our predictions
        if state.prediction is not None and self.settings.use_length and ours:
            length = state.prediction.length.mean(0, state.max_new_tokens)
            state.predicted_steps = length * state.posterior.steps_per_token()
        super().on_arrival(state)
        self._wait(state)

    def on_admit(self, state: RequestState) -> None:
        super().on_admit(state)
        self._leave(state)
        self.place(state)

    def on_step(self, state: RequestState, k: int, n: int, tokens: int) -> None:
        state.on_step(k, n, tokens)
        self.population.observe_step(tokens, natural=not state.runs_to_limit)
        if state.steps % self.settings.refresh_steps == 0:
            self.population.observe_progress(state)
            self.place(state)

    def on_preempt(self, state: RequestState, cached_tokens: int = 0) -> None:
        super().on_preempt(state, cached_tokens)
        self._victims.leave(state)
        self._wait(state)

    def on_finish(self, state: RequestState) -> None:
        super().on_finish(state)
        self._leave(state)
        self._learn(self.population.observe_finish, state)

    def on_abort(self, state: RequestState) -> None:
        super().on_abort(state)
        self._leave(state)
        if state.cut:
            self._learn(self.population.observe_cut, state)
        else:
            self.population.observe_departure(state)

    def _learn(self, observe: Callable[[RequestState], bool], state: RequestState) -> None:
        """Let the population learn from a request that left, and place everybody anew when that changed it."""
        trusted = self.population.trust
        if observe(state):
            stale = self.population.trust != trusted or trusted < 0.5  # else the population hardly counts
            for other in self._waiting.values():
                if stale or self._curve(other) is self.population.lengths:
                    self.place(other)

    def _wait(self, state: RequestState) -> None:
        self._waiting[state.arrival] = state
        patience = self.settings.patience * max(state.perceived_service, self.settings.patience_floor)
        state.deadline = self.now + int(min(patience, 1e15)) + 1
        self._deadlines.add(state)

    def _leave(self, state: RequestState) -> None:
        self._waiting.pop(state.arrival, None)
        self._ranked.leave(state)
        self._victims.leave(state)

    @property
    def trust(self) -> float:
        return self.population.trust

    # --- perceived service ------------------------------------------------------------------------------------

    def perceived(self, state: RequestState) -> float:
        """Return the remaining perceived service in verify steps, the prefill that it needs included."""
        return self._tokens_left(state) * self._steps_per_token(state) + self.prefill_service(state.prefill_tokens)

    def _tokens_left(self, state: RequestState) -> float:
        """Remaining tokens by the index of the settings, averaged over the prediction and the population.

        The weight of the prediction is the trust in it times the chance that it gave the request to live so long
        (Bayesian model averaging of the two curves).
        """
        g, cap, trust = state.generated, state.max_new_tokens, self._trust(state)
        if state.runs_to_limit:
            return float(state.limit_left)
        if state.prediction is None or trust == 0:
            return self.population.tokens_left(g, cap)
        curve, population = state.prediction.length, self.population.lengths
        own = curve.gittins(g, cap) if self.settings.index == "gittins" else curve.mean(g, cap)
        if trust == 1:
            return own
        weight = trust * curve.survive(g)
        weight /= weight + (1 - trust) * population.survive(g)
        return weight * own + (1 - weight) * self.population.tokens_left(g, cap)

    def _steps_per_token(self, state: RequestState) -> float:
        """E[1/m] of the request's own posterior, or of all requests as far as its prior is not to be believed."""
        own, trust = state.posterior.steps_per_token(), 0.0 if state.prediction is None else self.population.trust
        if trust == 1:
            return own
        known = state.steps / (state.steps + _OWN_STEPS) if self.population.experienced else 0.0
        weight = max(trust, known)
        return weight * own + (1 - weight) / self.population.accept_length

    def _trust(self, state: RequestState) -> float:
        """How far the request's predicted length is believed, 0 to 1."""
        return self.population.trust if state.prediction is not None and self.settings.use_length else 0.0

    def _curve(self, state: RequestState) -> SurvivalCurve:
        """Its predicted length, or that of all requests where there is none to believe."""
        if state.prediction is None or self._trust(state) == 0:
            return self.population.lengths
        return state.prediction.length

    # --- queues -----------------------------------------------------------------------------------------------

    def place(self, state: RequestState) -> None:
        """Put the request into its queue, and into its place in it."""
        state.perceived_service = order = self.perceived(state)
        service = order
        if not self.settings.seeded and not self.perceptible(state):
            order = 0.0  # non-perceptible requests are explored first, in the order of their arrival
            service = state.steps
        if self.settings.index == "attained":
            service = state.steps
        state.queue = self.queue_of(service)
        # Who ends at once, then the client's priority, then who has waited too long.
        tier = -inf if state.ending else -2 * state.priority - state.overdue
        if state.overdue:
            state.key = (tier, 0, float(state.deadline), state.arrival)
        else:
            state.key = (tier, state.queue, order, state.arrival)
        self._ranked.changed(state)
        if state.running:
            gain = (
                state.queue if self.settings.index == "attained" else state.perceived_service - self._recompute(state)
            )
            kept = state.overdue or not self._may_lose_slot(state)
            state.victim_rank = (-state.priority, -inf if kept else gain, state.arrival)
            self._victims.put(state)

    def queue_of(self, service: float) -> int:
        """Return the queue for this service in verify steps: the least k with service <= q0 · f^k."""
        return bisect_left(self._thresholds, service)

    def rank(self, waiting: list[Any], state_of: StateOf = itself) -> None:
        self._ranked.sort(waiting, state_of)

    # --- preemption -------------------------------------------------------------------------------------------

    def victim(self, candidate: RequestState, running: Sequence[Any], state_of: StateOf = itself) -> Any | None:
        """Return who gives way: a running request of a lower queue, the one from which most is gained."""
        if not self.preemptive or candidate.ending:
            return None
        affordable = (s for s in islice(self._victims, _LOOKS) if self._affordable(s, candidate))
        for state in islice(affordable, _TRIES):
            if self._gives_way(state, candidate):
                for item in running:
                    if state_of(item) is state:
                        return item
        return None

    def _affordable(self, state: RequestState, candidate: RequestState) -> bool:
        """Whether it may be preempted at all, and more can be gained than bringing it back will cost.

        Client priority goes before the rest; overdue requests keep their slots.
        """
        if not self._may_lose_slot(state):
            return False
        if state.priority != candidate.priority:
            return state.priority < candidate.priority
        return not state.overdue and self._recompute(state) < self._most_gained()

    def _may_lose_slot(self, state: RequestState) -> bool:
        """Not who could not go on where it was, who ends anyway, or who lost its slot often enough."""
        return state.resumable and not state.ending and state.preemptions < self.settings.max_preemptions

    def _gives_way(self, state: RequestState, candidate: RequestState) -> bool:
        """Strict improvement: the candidate's queue is higher even with a margin and the recomputation on its bill."""
        if state.priority != candidate.priority:
            return True
        self.place(state)  # it has run since its place was computed
        if candidate.key[:2] >= state.key[:2]:
            return False
        if self.settings.index == "attained":
            return candidate.queue < state.queue
        trust = self._trust(candidate)
        margin = trust * self.settings.margin + (1 - trust) * self.settings.blind_margin
        if self.queue_of(candidate.perceived_service * margin + self._recompute(state)) >= state.queue:
            return False
        return self._steps_left(state) > self.settings.protect_steps  # whoever is near its end keeps its slot

    def _steps_left(self, state: RequestState) -> float:
        """Expected verify steps to its end, by the curve that is believed; an index would be too hopeful."""
        if state.runs_to_limit:
            return state.limit_left * self._steps_per_token(state)
        length = self._curve(state)
        return length.mean(state.generated, state.max_new_tokens) * self._steps_per_token(state)

    def _recompute(self, state: RequestState) -> float:
        """Verify steps that all requests together lose when this one has to be brought back: nobody moves meanwhile."""
        if self.settings.index == "attained":
            return 0.0  # the paper does not charge it
        stall = self._batch_steps + self._token_steps * state.context_tokens
        return self.settings.recompute_weight * stall * (self._slots + len(self._waiting))

    def _most_gained(self) -> float:
        """Verify steps that all requests together gain at most: whoever waits moves up by one release of a slot."""
        return self.population.steps_per_request / self._slots * len(self._waiting)

    # --- KV memory --------------------------------------------------------------------------------------------

    def may_pass(self, blocked: RequestState) -> bool:
        """Lighter requests are tried, unless the blocked one has waited too long already."""
        return not blocked.overdue

    def reserve_tokens(self, state: RequestState) -> int:
        """KV tokens for the quantile of the remaining length that the settings name; all where it is known exactly."""
        if state.runs_to_limit:
            return super().reserve_tokens(state)
        tokens = int(self._curve(state).quantile(self.settings.kv_quantile, state.generated)) + 1
        return min(tokens, super().reserve_tokens(state))
