"""Waiting requests are placed anew after a review of the statistics, a few in every round."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from laps_sd.scheduler.state import RequestState

#: Entries of requests that wait no more which are always kept; beyond that as many as there are live ones.
_SPARE = 64


class Sweep:
    """Goes round the waiting requests, the one placed longest ago first.

    Parameters
    ----------
    waiting : mapping of int to RequestState
        By arrival number.
    """

    def __init__(self, waiting: Mapping[int, RequestState]) -> None:
        self._waiting = waiting
        self._round: deque[int] = deque()  # arrival numbers, some of requests that wait no more
        self._left = 0  # entries that the last review has outdated, those without a prediction
        self._everybody = 0  # the first of them that are outdated whether they have one or not

    def add(self, state: RequestState) -> None:
        """The request begins to wait, and was just placed."""
        self._round.append(state.arrival)
        if len(self._round) > 2 * len(self._waiting) + _SPARE:
            kept = dict.fromkeys(arrival for arrival in self._round if arrival in self._waiting)
            self._left, self._everybody = (min(left, len(kept)) for left in (self._left, self._everybody))
            self._round = deque(kept)

    def begin(self, *, everybody: bool) -> None:
        """All places are outdated; not ``everybody``: those of requests without a prediction."""
        self._left = len(self._round)
        if everybody:
            self._everybody = self._left

    def take(self, count: int) -> Iterator[RequestState]:
        """Yield those of the next ``count`` whose place is outdated."""
        for _ in range(min(count, self._left)):
            everybody = self._everybody > 0
            self._left -= 1
            self._everybody -= everybody
            arrival = self._round.popleft()
            state = self._waiting.get(arrival)
            if state is not None:
                self._round.append(arrival)
                if everybody or state.prediction is None:
                    yield state
