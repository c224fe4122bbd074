"""What comes out of a simulation: what happened to each request, and the queue over time."""

from __future__ import annotations

from dataclasses import dataclass

from laps_sd.scheduler.outcomes import RequestOutcome

#: Moments that a timeline keeps, enough to draw it.
_MOST_MOMENTS = 1024


class Timeline:
    """Numbers of waiting and running requests at moments of a run; when there are too many, every other one is dropped.

    Attributes
    ----------
    seconds : list of float
    waiting, running : list of int
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.waiting: list[int] = []
        self.running: list[int] = []
        self._stride = 1
        self._skipped = 0

    def note(self, seconds: float, waiting: int, running: int) -> None:
        """Remember a moment, or count it among those left out."""
        self._skipped += 1
        if self._skipped < self._stride:
            return
        self._skipped = 0
        self.seconds.append(seconds)
        self.waiting.append(waiting)
        self.running.append(running)
        if len(self.seconds) == _MOST_MOMENTS:
            self.seconds, self.waiting, self.running = self.seconds[::2], self.waiting[::2], self.running[::2]
            self._stride *= 2


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What happened.

    Attributes
    ----------
    outcomes : list of RequestOutcome
        In the order of arrival.
    rank_us : list of float
        Microseconds that the policy took in each round that asked it for a decision.
    timeline : Timeline
        Waiting and running requests over time.
    """

    outcomes: list[RequestOutcome]
    rank_us: list[float]
    timeline: Timeline
