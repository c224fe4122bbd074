"""The preemption rule: which running request gives its slot to a candidate, if any does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

from laps_sd.scheduler.policies.perceived_service import PerceivedService
from laps_sd.scheduler.state import RequestState, VictimRank

if TYPE_CHECKING:
    from laps_sd.scheduler.policies.laps_sd import LapsSd


class GainAgainstBill:
    """The victim is whoever gives the most; it must give more than bringing it back will cost.

    Parameters
    ----------
    policy : LapsSd
        Tells what prefill costs, how often a slot is released, and what waiting makes of a request's service.
    service : PerceivedService
    waiting : sized
        The requests that wait: each of them is late by a stall, and moves up by a release.
    """

    def __init__(
        self,
        policy: LapsSd,
        service: PerceivedService,
        waiting: Sized,
    ) -> None:
        self._policy = policy
        self._settings = policy.settings
        self._service = service
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
        most = self._most_gained()
        if most <= self._least_bill():  # as mostly with many slots: nobody of the candidate's priority is worth it
            most = 0.0
        affordable = (state for state in considered if self._affordable(state, candidate, most))
        for state in islice(affordable, self._settings.victims_estimated):
            if state.priority != candidate.priority:
                yield state
                continue
            place(state)
            if candidate.key[0] <= state.key[0] and self._improves(candidate, state):
                yield state

    def _affordable(self, state: RequestState, candidate: RequestState, most: float) -> bool:
        """Whether it may be preempted at all, and bringing it back costs less than ``most``, what can be gained.

        Client priority goes before the rest; overdue requests keep their slots, from a higher priority where the
        settings say so.
        """
        if most == 0 and state.priority == candidate.priority:
            return False
        if not self._may_lose_slot(state):
            return False
        if state.priority != candidate.priority:
            kept = state.overdue and self._settings.patience_before_priority
            return state.priority < candidate.priority and not kept
        return not state.overdue and self._bill(state) < most

    def _may_lose_slot(self, state: RequestState) -> bool:
        """Not who could not go on where it was, who ends anyway, or who lost its slot often enough.

        Swaps that ride cost so little that the bill does not limit them. A request bears one for every slotful of
        requests that wait: behind a short queue it gains next to nothing and lengthens the tail. One whose answer has
        told how long it is bears as many as any other swap may cost it.
        """
        most = self._settings.max_preemptions
        if self._rides() and not state.refinements:
            most = min(most, len(self._waiting) // self._policy.prefill.slots)
        return state.resumable and not state.ending and state.preemptions < most

    def _rides(self) -> bool:
        """Whether a swap now saves the launch that it would otherwise need."""
        return self._policy.engine.launching and self._settings.ride and self._policy.prefill.per_batch > 0

    def _improves(self, candidate: RequestState, state: RequestState) -> bool:
        """Whether the candidate's queue is higher even with a margin and the bill, and the other not near its end."""
        trust = self._service.trust_in(candidate)
        margin = trust * self._settings.margin + (1 - trust) * self._settings.blind_margin
        least = self._policy.discounted(candidate, candidate.perceived_service * margin + self._bill(state))
        if self._policy.queues.of(least) >= state.queue:
            return False
        return self._service.steps_to_end(state) > self._settings.protect_steps

    def _gain(self, state: RequestState) -> float:
        if self._policy.boost.rate:
            return state.key[2]
        return state.perceived_service - self._bill(state)

    def _bill(self, state: RequestState) -> float:
        """Verify steps that all requests together lose when this one has to be brought back: nobody moves meanwhile.

        A swap that rides in a launch that runs anyway, as the return will in a later one, costs the tokens that are
        computed again. Of any other the whole prefill counts, as if nothing were in the cache.
        """
        prefill, engine = self._policy.prefill, self._policy.engine
        if self._rides():
            stall = prefill.per_token * (1 if engine.keeps_kv else state.generated + 1)
        else:
            stall = prefill.stall(state.context_tokens)
        return self._settings.recompute_weight * stall * (prefill.slots + len(self._waiting))

    def _least_bill(self) -> float:
        """Return what no victim costs less than."""
        prefill = self._policy.prefill
        fixed = prefill.per_token if self._rides() else prefill.stall(0)
        return self._settings.recompute_weight * fixed * (prefill.slots + len(self._waiting))

    def _most_gained(self) -> float:
        """Verify steps that all requests together gain at most.

        The next release of a slot, after E[steps] / slots rounds, would have let the candidate in anyway, and the swap
        could be made then. So one of the slots works for so many rounds on something shorter, and those who wait for
        this slot, their number divided by the slots, move up by it.

        One that needs a launch of its own must gain so much without that ride: it counts for one slot's share of it.
        With four slots and more such swaps gained nothing over riding, and took their time from the tail.
        """
        prefill = self._policy.prefill
        most = self._policy.population.steps_per_request / prefill.slots**2 * len(self._waiting)
        own_launch = prefill.per_batch > 0 and not self._rides()
        return most / prefill.slots if own_launch else most


class LowerQueue(GainAgainstBill):
    """The paper's rule: a request of a lower queue gives way, the one of the lowest first, and nothing is charged."""

    def _improves(self, candidate: RequestState, state: RequestState) -> bool:
        return candidate.queue < state.queue

    def _gain(self, state: RequestState) -> float:
        return state.queue

    def _bill(self, state: RequestState) -> float:
        return 0.0

    def _least_bill(self) -> float:
        return 0.0
