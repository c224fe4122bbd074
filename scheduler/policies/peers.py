"""The policies that ``laps-sd`` is measured against, each as its authors describe it, in verify steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from laps_sd.scheduler.policies.base import Policy, comparable, itself
from laps_sd.scheduler.policies.boost import boost
from laps_sd.scheduler.policies.waiting_order import StateOf
from laps_sd.scheduler.service import CostModel
from laps_sd.scheduler.settings import Settings
from laps_sd.scheduler.state import RequestState


def predicted_steps(state: RequestState) -> float:
    """Verify steps that were predicted for a request at arrival; 1 where nothing was: all are alike then."""
    prediction = state.prediction
    if prediction is None:
        return 1.0
    return max(prediction.length.mean(0, state.max_new_tokens) / prediction.accept_length, 1.0)


class PreemptivePolicy(Policy):
    """Serve the least `score`; a candidate displaces the running request with the worst one if it is strictly better.

    ``quantum`` is the service (verify steps) between two looks at a running request's score.
    """

    quantum = 1
    preemptive = True

    def score(self, state: RequestState) -> float:
        """Return the index of the request; lower goes first."""
        raise NotImplementedError

    def place(self, state: RequestState) -> None:
        """See `Policy.place`."""
        state.perceived_service = comparable(self.score(state))
        state.key = (state.tier, 0, state.perceived_service, state.arrival)

    def on_step(self, state: RequestState, k: int, n: int, tokens: int) -> None:
        """See `Policy.on_step`."""
        state.on_step(k, n, tokens)
        if self.preemptive and state.steps % self.quantum == 0:
            self.place(state)

    def victim(self, candidate: RequestState, running: Sequence[Any], state_of: StateOf = itself) -> Any | None:
        """See `Policy.victim`."""
        if not (self.preemptive and running):
            return None
        worst = max(running, key=lambda item: state_of(item).key)
        return worst if candidate.key[:3] < state_of(worst).key[:3] else None


class Hrrn(Policy):
    """Highest response ratio next (Brinch Hansen 1971) with prompt tokens for service, as SGLang's ``hrrn``."""

    name = "hrrn"

    def rank(self, waiting: list[Any], state_of: StateOf = itself) -> Sequence[RequestState]:
        """See `Policy.rank`."""
        for s in map(state_of, waiting):
            ratio = (self.now - s.waiting_since) / max(s.prefill_tokens, 1)
            s.key = (s.tier, 0, -ratio, s.arrival)
        return super().rank(waiting, state_of)


class HrrnPredicted(Policy):
    """Highest response ratio next over predicted verify steps: `hrrn` with what the predictors know."""

    name = "hrrn-predicted"
    uses_predictions = True

    def on_arrival(self, state: RequestState) -> None:
        """See `Policy.on_arrival`."""
        state.perceived_service = comparable(predicted_steps(state))
        super().on_arrival(state)

    def rank(self, waiting: list[Any], state_of: StateOf = itself) -> Sequence[RequestState]:
        """See `Policy.rank`."""
        for s in map(state_of, waiting):
            ratio = (self.now - s.waiting_since) / s.perceived_service
            s.key = (s.tier, 0, -ratio, s.arrival)
        return super().rank(waiting, state_of)


class BoostPredicted(Policy):
    """gamma-Boost (Yu and Scully 2024) over predicted verify steps, without preemption.

    gamma is 0.05 over the mean of the steps predicted so far: of the rates tried, the one that shortens the tail most
    while the mean stays near that of shortest first (docs/results-costs.md).
    """

    name = "boost"
    uses_predictions = True
    rate_times_mean = 0.05

    def __init__(self, settings: Settings | None = None, cost: CostModel | None = None, slots: int = 1) -> None:
        super().__init__(settings, cost, slots)
        self._predicted = self._seen = 0.0

    def on_arrival(self, state: RequestState) -> None:
        """See `Policy.on_arrival`."""
        service = predicted_steps(state)
        self._predicted += service
        self._seen += 1
        rate = self.rate_times_mean * self._seen / self._predicted
        state.born = comparable(self.now - boost(service, rate))
        super().on_arrival(state)

    def place(self, state: RequestState) -> None:
        """See `Policy.place`."""
        state.key = (state.tier, 0, state.born, state.arrival)


class SjfPredicted(PreemptivePolicy):
    """Shortest predicted output length first, without preemption (Learning-to-Rank style, Fu et al. 2024)."""

    name = "sjf-predicted"
    uses_predictions = True
    preemptive = False

    def score(self, state: RequestState) -> float:
        """See `Policy.score`."""
        return 0.0 if state.prediction is None else state.prediction.length.mean(0, state.max_new_tokens)


class Las(PreemptivePolicy):
    """Least attained service first, in quanta of verify steps, so that equals take turns and not every step."""

    name = "las"
    quantum = 8

    def score(self, state: RequestState) -> float:
        """See `Policy.score`."""
        return state.steps // self.quantum


class Mlfq(PreemptivePolicy):
    """Skip-join multi-level feedback queue (FastServe, Wu et al. 2023).

    A request joins the queue whose quantum covers its prefill, sinks when it has used up its queue's quantum, and
    rises to the highest queue when it has waited ``starve`` rounds.
    """

    name = "mlfq"
    first_quantum = 16
    starve = 4096

    def score(self, state: RequestState) -> float:
        # Quanta double, so the attained service that leads out of queue q is first_quantum * (2^(q+1) - 1).
        """See `Policy.score`."""
        joined = self.prefill.per_token * state.prompt_tokens
        level, used_up = 0, self.first_quantum
        while state.steps + joined >= used_up:
            level, used_up = level + 1, used_up + (self.first_quantum << (level + 1))
        return level

    def rank(self, waiting: list[Any], state_of: StateOf = itself) -> Sequence[RequestState]:
        """See `Policy.rank`."""
        for s in map(state_of, waiting):
            if self.now - s.waiting_since >= self.starve:
                s.key = (s.tier, 0, 0.0, s.arrival)
        return super().rank(waiting, state_of)


class Gittins(PreemptivePolicy):
    """The Gittins index of the predicted length, divided by the accept length: optimal for one slot in theory."""

    name = "gittins"
    uses_predictions = True

    def score(self, state: RequestState) -> float:
        """See `Policy.score`."""
        if state.prediction is None:
            return 0.0
        index = state.prediction.length.gittins(state.generated, state.max_new_tokens)
        return index * state.posterior.steps_per_token()


class OracleSrpt(PreemptivePolicy):
    """Clairvoyant shortest remaining processing time: a reference, and with one slot and no costs the optimum.

    Recomputation is on the bill of a preemption: a reference must not thrash.
    """

    name = "oracle-srpt"
    clairvoyant = True

    def victim(self, candidate: RequestState, running: Sequence[Any], state_of: StateOf = itself) -> Any | None:
        """See `Policy.victim`."""
        item = super().victim(candidate, running, state_of)
        if item is None:
            return None
        worst = state_of(item)
        recompute = self.prefill.slots * self.prefill.per_batch + self.prefill.service(worst.context_tokens)
        shorter = candidate.perceived_service + recompute < worst.perceived_service
        return item if worst.priority < candidate.priority or shorter else None

    def score(self, state: RequestState) -> float:
        """See `Policy.score`."""
        if state.true_steps is None:
            raise ValueError("oracle-srpt needs the true number of verify steps, which only a replay knows")
        return state.true_steps - state.steps + self.prefill.service(state.prefill_tokens)
