"""The queues of Algorithm 1, by the service that leads into each."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate, repeat
from operator import mul

from laps_sd.scheduler.settings import Settings


class Queues:
    """Thresholds q0 · f^k; the lowest queue has no upper bound."""

    def __init__(self, settings: Settings) -> None:
        factors = repeat(settings.factor, settings.levels - 1)
        self._thresholds = list(accumulate(factors, mul, initial=settings.first_threshold))[:-1]

    def of(self, service: float) -> int:
        """Return the queue for this service in verify steps, 0 the highest: the least k with service <= q0 · f^k."""
        return bisect_left(self._thresholds, service)
