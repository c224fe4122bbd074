"""Running requests by how readily they give way, so that asking for a victim looks at the first few only."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from laps_sd.scheduler.state import RequestState, VictimRank


class VictimOrder:
    """Kept up to date as places are computed."""

    def __init__(self) -> None:
        self._order: list[VictimRank] = []  # ascending: the most ready is last
        self._members: dict[int, tuple[VictimRank, RequestState]] = {}  # by arrival number

    def put(self, state: RequestState) -> None:
        """The request runs, and its ``victim_rank`` is new."""
        self.leave(state)
        self._members[state.arrival] = state.victim_rank, state
        insort(self._order, state.victim_rank)

    def leave(self, state: RequestState) -> None:
        """The request runs no more."""
        member = self._members.pop(state.arrival, None)
        if member is not None:
            del self._order[bisect_left(self._order, member[0])]

    def __iter__(self) -> Iterator[RequestState]:
        """Yield those that run now, the most ready one first, whatever is put anew meanwhile."""
        for _, _, arrival in self._order[::-1]:
            yield self._members[arrival][1]
