"""When freed slots are filled: a prefill launch stops everybody, so slots released soon after each other share one.

An empty slot costs its share of every round, a launch costs all slots a standstill. If slots are released h times a
round and a launch costs A slot-rounds, filling k at a time costs (A + k (k - 1) / 2h) / k slot-rounds each: economic
order quantity (Harris 1913). It is least at the smallest k with k (k + 1) / 2h >= A. With one or few slots that is
one: nobody is kept waiting for a release that is far away.
"""

from __future__ import annotations

from laps_sd.scheduler.policies.population import Population
from laps_sd.scheduler.service import PrefillSteps

#: A launch counts for so much of its cost: where both are about as good, a slot is filled at once.
_CAUTION = 0.75
#: And no slots stay empty longer than so many times the cost of the launch that is to be saved (slot-rounds).
_MOST_IDLE = 1.5


class Gathering:
    """Counts the slot-rounds that stay empty, and says when to fill.

    Parameters
    ----------
    population : Population
        Tells how often a slot is released.
    prefill : PrefillSteps
        Tells what a launch costs.
    """

    def __init__(self, population: Population, prefill: PrefillSteps) -> None:
        self._population = population
        self._prefill = prefill
        self._idle = 0.0
        self._asked: int | None = None  # the round of the last question, while slots are held

    def holds(self, now: int, free: int, waiting: int, running: int) -> bool:
        """Return whether to leave the free slots empty in round ``now``."""
        if self._asked is None:
            self._idle = 0.0
        else:
            self._idle += free * (now - self._asked)
        hold = self._worth(free, waiting, running)
        self._asked = now if hold else None
        return hold

    def _worth(self, free: int, waiting: int, running: int) -> bool:
        launch = self._prefill.per_batch * (running + free)
        if launch == 0 or running == 0 or waiting <= free:  # all who wait can start: there is no queue to be served
            return False
        per_round = running / max(self._population.steps_per_request, 1.0)
        filled_together = free * (free + 1) / (2 * per_round)
        return filled_together < _CAUTION * launch and self._idle < _MOST_IDLE * launch
