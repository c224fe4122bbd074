"""Waiting requests are placed anew after a review of the statistics, a few in every round."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from laps_sd.scheduler.state import RequestState


class Sweep:
    """Goes round the waiting requests, the one placed longest ago first."""

    def __init__(self) -> None:
        # In the order in which they were placed, with the number of reviews before; not a dict, whose first item is
        # ever harder to find the more have left.
        self._placed: OrderedDict[int, tuple[RequestState, int]] = OrderedDict()  # by arrival number
        self._reviews = 0
        self._of_everybody = 0  # how many of them there were up to the last one that outdated every place

    def __len__(self) -> int:
        return len(self._placed)

    def add(self, state: RequestState) -> None:
        """The request begins to wait, and was just placed."""
        self._placed[state.arrival] = state, self._reviews
        self._placed.move_to_end(state.arrival)

    def leave(self, state: RequestState) -> None:
        """The request waits no more."""
        self._placed.pop(state.arrival, None)

    def begin(self, *, everybody: bool) -> None:
        """All places are outdated; not ``everybody``: those of requests without a prediction."""
        self._reviews += 1
        if everybody:
            self._of_everybody = self._reviews

    def take(self, count: int) -> Iterator[RequestState]:
        """Yield those of the next ``count`` whose place is outdated."""
        for _ in range(count):
            state, placed = next(iter(self._placed.values()), (None, self._reviews))
            if state is None or placed == self._reviews:
                return
            self.add(state)
            if placed < self._of_everybody or state.prediction is None:
                yield state
