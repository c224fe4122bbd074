"""Waiting for the time of a request: by the clock, or by the rounds that the server logs."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

_LOOK_EVERY_S = 0.003


class Clock(Protocol):
    """What the load generator waits by."""

    async def until(self, moment: float, in_flight: Callable[[], int]) -> None:
        """Return when ``moment`` has come; ``in_flight`` says how many requests are unanswered."""
        raise NotImplementedError


class WallClock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._started = time.perf_counter()

    async def until(self, moment: float, in_flight: Callable[[], int]) -> None:
        """See `Clock.until`."""
        await asyncio.sleep(max(0.0, moment - (time.perf_counter() - self._started)))


class RoundClock:
    """Rounds that the server has done since this was made, read from its log; it stands still while nothing runs.

    A server that is idle does no rounds, so the clock jumps to the next request then.

    Parameters
    ----------
    log : Path
        The file that LAPS_SD_ROUNDS named.
    """

    def __init__(self, log: Path) -> None:
        self._file = log.open("rb")
        self._rest = b""
        self._start = self._done = 0
        self._skipped = 0.0
        self._read()
        self._start = self._done

    @property
    def now(self) -> float:
        """Rounds, those that were skipped included."""
        return self._done - self._start + self._skipped

    async def until(self, moment: float, in_flight: Callable[[], int]) -> None:
        """See `Clock.until`."""
        while True:
            self._read()
            if self.now >= moment:
                return
            if in_flight() == 0:
                self._skipped += moment - self.now
                return
            await asyncio.sleep(_LOOK_EVERY_S)

    def close(self) -> None:
        """Close the log."""
        self._file.close()

    def _read(self) -> None:
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            self._done = msgspec.json.decode(line).get("round", self._done)
