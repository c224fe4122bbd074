"""When waiting requests become overdue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush

from laps_sd.scheduler.state import RequestState

_SPARE = 64  # entries of requests that wait no more which are always kept; beyond that as many as there are live ones


class Deadlines:
    """A heap over ``waiting`` (by arrival number), with room for requests that left it long before they were due.

    Most requests do, and with much patience their entries would lie here for weeks: they are swept when they are more
    than those that count.
    """

    def __init__(self, waiting: Mapping[int, RequestState]) -> None:
        self._waiting = waiting
        self._heap: list[tuple[int, int]] = []  # (round, arrival number)

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, state: RequestState) -> None:
        """The request waits, and its ``deadline`` is new."""
        heappush(self._heap, (state.deadline, state.arrival))
        if len(self._heap) > 2 * len(self._waiting) + _SPARE:
            self._heap = [entry for entry in self._heap if self._state(*entry) is not None]
            heapify(self._heap)

    def due(self, now: int) -> Iterator[RequestState]:
        """Take out and yield those that still wait and are due in round ``now``, the earliest first.

        Whoever stops asking leaves the others for later.
        """
        while self._heap and self._heap[0][0] <= now:
            state = self._state(*heappop(self._heap))
            if state is not None:
                yield state

    def _state(self, due: int, arrival: int) -> RequestState | None:
        state = self._waiting.get(arrival)
        return state if state is not None and state.deadline == due else None
