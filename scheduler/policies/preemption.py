"""The preemption rule: which running request gives its slot to a candidate, if any does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from itertools import islice
from math import inf

from laps_sd.scheduler.policies.perceived_service import PerceivedService
from laps_sd.scheduler.policies.population import Population
from laps_sd.scheduler.policies.queues import Queues
from laps_sd.scheduler.service import PrefillSteps
from laps_sd.scheduler.settings import Settings
from laps_sd.scheduler.state import RequestState, VictimRank


class GainAgainstBill:
    """The victim is whoever gives the most; it must give more than bringing it back will cost.

    Parameters
    ----------
    settings : Settings
    service : PerceivedService
    population : Population
        Tells how often a slot is released.
    prefill : PrefillSteps
        Tells what bringing a victim back costs.
    queues : Queues
    waiting : sized
        The requests that wait: each of them is late by a stall, and moves up by a release.
    """

    def __init__(
        self,
        settings: Settings,
        service: PerceivedService,
        population: Population,
        prefill: PrefillSteps,
        queues: Queues,
        waiting: Sized,
    ) -> None:
        self._settings = settings
        self._service = service
        self._population = population
        self._prefill = prefill
        self._queues = queues
        self._waiting = waiting

    def rank(self, state: RequestState) -> VictimRank:
        """Return how readily a running request gives way: by priority, then by what is gained."""
        kept = state.overdue or not self._may_lose_slot(state)
        return -state.priority, -inf if kept else self._gain(state), state.arrival

    def victims(
        self, candidate: RequestState, running: Iterable[RequestState], place: Callable[[RequestState], None]
    ) -> Iterator[RequestState]:
        """Yield those that may give way to ``candidate``, the best first.

        Parameters
        ----------
        running : iterable of RequestState
            In the order of `rank`, the readiest first.
        place : callable
            Computes a request's queue anew: it has run since.
        """
        considered = islice(running, self._settings.victims_considered)
        affordable = (state for state in considered if self._affordable(state, candidate))
        for state in islice(affordable, self._settings.victims_estimated):
            if state.priority != candidate.priority:
                yield state
                continue
            place(state)
            if candidate.key[:2] < state.key[:2] and self._improves(candidate, state):
                yield state

    def _affordable(self, state: RequestState, candidate: RequestState) -> bool:
        """Whether it may be preempted at all, and more can be gained than bringing it back will cost.

        Client priority goes before the rest; overdue requests keep their slots, from a higher priority where the
        settings say so.
        """
        if not self._may_lose_slot(state):
            return False
        if state.priority != candidate.priority:
            kept = state.overdue and self._settings.patience_before_priority
            return state.priority < candidate.priority and not kept
        return not state.overdue and self._bill(state) < self._most_gained()

    def _may_lose_slot(self, state: RequestState) -> bool:
        """Not who could not go on where it was, who ends anyway, or who lost its slot often enough."""
        return state.resumable and not state.ending and state.preemptions < self._settings.max_preemptions

    def _improves(self, candidate: RequestState, state: RequestState) -> bool:
        """Whether the candidate's queue is higher even with a margin and the bill, and the other not near its end."""
        trust = self._service.trust_in(candidate)
        margin = trust * self._settings.margin + (1 - trust) * self._settings.blind_margin
        if self._queues.of(candidate.perceived_service * margin + self._bill(state)) >= state.queue:
            return False
        return self._service.steps_to_end(state) > self._settings.protect_steps

    def _gain(self, state: RequestState) -> float:
        return state.perceived_service - self._bill(state)

    def _bill(self, state: RequestState) -> float:
        """Verify steps that all requests together lose when this one has to be brought back: nobody moves meanwhile."""
        stall = self._prefill.stall(state.context_tokens)
        return self._settings.recompute_weight * stall * (self._prefill.slots + len(self._waiting))

    def _most_gained(self) -> float:
        """Verify steps that all requests together gain at most: whoever waits moves up by one release of a slot."""
        return self._population.steps_per_request / self._prefill.slots * len(self._waiting)


class LowerQueue(GainAgainstBill):
    """The paper's rule: a request of a lower queue gives way, the one of the lowest first, and nothing is charged."""

    def _improves(self, candidate: RequestState, state: RequestState) -> bool:
        return candidate.queue < state.queue

    def _gain(self, state: RequestState) -> float:
        return state.queue

    def _bill(self, state: RequestState) -> float:
        return 0.0
