"""LAPS-SD: least attained / perceived service in multi-level queues (arXiv 2505.17074, Algorithm 1), seeded.

This file decides who runs. Between queues: a request of a higher queue takes the slot of one of a lower queue. Inside
a queue: shortest perceived service first, without preemption. What a request's perceived service is follows from its
predicted length, conditioned on the tokens produced, and its acceptance posterior.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import log

from laps_sd.scheduler.evidence import Evidence
from laps_sd.scheduler.policy import Policy
from laps_sd.scheduler.service import CostModel
from laps_sd.scheduler.settings import Settings
from laps_sd.scheduler.state import RequestState


class LapsSd(Policy):
    """The default policy; see docs/scheduler.md for the whole story and `Settings` for every constant."""

    name = "laps-sd"

    def __init__(self, settings: Settings | None = None, cost: CostModel | None = None, slots: int = 1) -> None:
        super().__init__(settings, cost, slots)
        self.preemptive = self.settings.preemption
        self.evidence = Evidence(self.settings)
        self._waiting: dict[int, RequestState] = {}
        self._deadlines: list[tuple[int, int]] = []  # (round, arrival number), a heap
        self._log_factor = log(self.settings.factor)

    # --- the life of a request --------------------------------------------------------------------------------

    def start_round(self, rounds: int = 1) -> None:
        super().start_round(rounds)
        while self._deadlines and self._deadlines[0][0] <= self.now:
            due, arrival = heappop(self._deadlines)
            state = self._waiting.get(arrival)
            if state is not None and state.deadline == due:
                state.overdue = True
                self.place(state)

    def on_arrival(self, state: RequestState) -> None:
        if state.prediction is not None and self.settings.use_length:
            length = state.prediction.length.mean(0, state.max_new_tokens)
            state.predicted_steps = length * state.posterior.steps_per_token()
        super().on_arrival(state)
        self._wait(state)

    def on_admit(self, state: RequestState) -> None:
        super().on_admit(state)
        self._waiting.pop(state.arrival, None)
        self.place(state)

    def on_step(self, state: RequestState, k: int, n: int, tokens: int) -> None:
        state.on_step(k, n, tokens)
        if state.steps % self.settings.refresh_steps == 0:
            self.evidence.passed(state)
            self.place(state)

    def on_preempt(self, state: RequestState, cached_tokens: int = 0) -> None:
        super().on_preempt(state, cached_tokens)
        self._wait(state)

    def on_finish(self, state: RequestState) -> None:
        super().on_finish(state)
        self._waiting.pop(state.arrival, None)
        if self.evidence.finished(state):
            for other in self._waiting.values():
                self.place(other)

    def on_abort(self, state: RequestState) -> None:
        super().on_abort(state)
        self._waiting.pop(state.arrival, None)
        self.evidence.passed(state)

    def _wait(self, state: RequestState) -> None:
        self._waiting[state.arrival] = state
        patience = self.settings.patience * max(state.work, self.settings.patience_floor)
        state.deadline = self.now + int(min(patience, 1e15)) + 1
        heappush(self._deadlines, (state.deadline, state.arrival))

    # --- perceived service ------------------------------------------------------------------------------------

    def perceived(self, state: RequestState) -> float:
        """Return the remaining perceived service in verify steps, the prefill that it needs included."""
        return self._tokens_left(state) * self._steps_per_token(state) + state.prefill_tokens * self._prefill_steps

    def _tokens_left(self, state: RequestState) -> float:
        """Expected remaining tokens (or their Gittins index), averaged over the prediction and the population.

        The weight of the prediction is the trust in it times the chance that it gave the request to live so long.
        """
        g, cap, trust = state.generated, state.max_new_tokens, self.evidence.trust
        population = self.evidence.population
        if state.prediction is None or not self.settings.use_length or trust == 0:
            return population.mean(g, cap)
        curve = state.prediction.length
        own = curve.gittins(g, cap) if self.settings.index == "gittins" else curve.mean(g, cap)
        if trust == 1:
            return own
        weight = trust * curve.survive(g)
        weight /= weight + (1 - trust) * population.survive(g)
        return weight * own + (1 - weight) * population.mean(g, cap)

    def _steps_per_token(self, state: RequestState) -> float:
        own, trust = state.posterior.steps_per_token(), self.evidence.trust
        if trust == 1 and state.prediction is not None:
            return own
        weight = max(trust if state.prediction is not None else 0.0, state.steps / (state.steps + 16))
        return weight * own + (1 - weight) / self.evidence.accept_length

    # --- queues -----------------------------------------------------------------------------------------------

    def place(self, state: RequestState) -> None:
        state.work = self.perceived(state)
        if self.settings.index == "attained":
            state.level = self.level(state.steps)
            perceptible = state.posterior.stable(self.settings.stability)
            order = state.work if perceptible else 0.0
        else:
            state.level = self.level(state.work)
            order = state.work
        tier = -2 * state.priority - state.overdue
        if state.overdue:
            state.key = (tier, 0, float(state.deadline), state.arrival)
        else:
            state.key = (tier, state.level, order, state.arrival)

    def level(self, service: float) -> int:
        """Return the queue for this service in verify steps: the least k with service <= q0 · f^k."""
        first, levels = self.settings.first_threshold, self.settings.levels
        if service <= first:
            return 0
        return min(int(log(service / first) / self._log_factor) + 1, levels - 1)

    # --- preemption -------------------------------------------------------------------------------------------

    def victim(self, candidate: RequestState, running: Sequence[RequestState]) -> RequestState | None:
        """Return who gives way: the running request in the lowest queue, if the candidate's is strictly higher.

        The candidate is charged with the victim's recomputation and a margin; requests near their end, overdue ones
        and those preempted often enough keep their slots; client priority goes before all that.
        """
        if not self.settings.preemption:
            return None
        for state in sorted(running, key=lambda s: s.key, reverse=True):
            if state.priority > candidate.priority:
                continue
            self.place(state)
            if state.priority < candidate.priority or self._gives_way(state, candidate):
                return state
            if state.level <= candidate.level:
                break
        return None

    def _gives_way(self, state: RequestState, candidate: RequestState) -> bool:
        settings = self.settings
        if state.overdue or state.preemptions >= settings.max_preemptions or state.work <= settings.protect_steps:
            return False
        if settings.index == "attained":
            return candidate.level < state.level
        recompute = settings.recompute_weight * self._prefill_steps * state.context_tokens
        return self.level(candidate.work * settings.margin + recompute) < state.level

    # --- KV memory --------------------------------------------------------------------------------------------

    def may_pass(self, blocked: RequestState) -> bool:
        """Lighter requests are tried, unless the blocked one has waited too long already."""
        return not blocked.overdue

    def reserve_tokens(self, state: RequestState) -> int:
        most = super().reserve_tokens(state)
        if state.prediction is None or not self.settings.use_length:
            return most
        return min(most, int(state.prediction.length.quantile(self.settings.kv_quantile, state.generated)) + 1)
