"""The queue over time, thinned as it grows."""

from __future__ import annotations

_MOST = 1024


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
        if len(self.seconds) == _MOST:
            self.seconds, self.waiting, self.running = self.seconds[::2], self.waiting[::2], self.running[::2]
            self._stride *= 2
