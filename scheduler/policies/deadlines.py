"""When waiting requests become overdue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heappop, heappush

from laps_sd.scheduler.state import RequestState

_SPARE = 64  # entries of requests that wait no more which are always kept; beyond that as many as there are live ones
_CLEARED = 4  # entries looked through whenever one is added, while there are more


class Deadlines:
    """A heap over ``waiting`` (by arrival number), with room for requests that left it long before they were due.

    Most requests do, and with much patience their entries would lie here for weeks: when they are more than those that
    count, the heap is put aside and looked through from its end, which leaves it a heap, a few entries at a time.
    """

    def __init__(self, waiting: Mapping[int, RequestState]) -> None:
        self._waiting = waiting
        self._heap: list[tuple[int, int]] = []  # (round, arrival number)
        self._aside: list[tuple[int, int]] = []  # likewise

    def __len__(self) -> int:
        return len(self._heap) + len(self._aside)

    def add(self, state: RequestState) -> None:
        """The request waits, and its ``deadline`` is new."""
        heappush(self._heap, (state.deadline, state.arrival))
        if not self._aside and len(self._heap) > 2 * len(self._waiting) + _SPARE:
            self._heap, self._aside = [], self._heap
        for _ in range(min(_CLEARED, len(self._aside))):
            entry = self._aside.pop()
            if self._state(*entry) is not None:
                heappush(self._heap, entry)

    def due(self, now: int) -> Iterator[RequestState]:
        """Take out and yield those that still wait and are due in round ``now``, the earliest first.

        Whoever stops asking leaves the others for later.
        """
        while heap := min((heap for heap in (self._heap, self._aside) if heap), default=[]):
            if heap[0][0] > now:
                return
            state = self._state(*heappop(heap))
            if state is not None:
                yield state

    def _state(self, due: int, arrival: int) -> RequestState | None:
        state = self._waiting.get(arrival)
        return state if state is not None and state.deadline == due else None
