"""Order by boosted arrival: how long a request has waited against how short it is, as one number that never ages.

gamma-Boost (Yu and Scully 2024, "Strongly tail-optimal scheduling in the light-tailed M/G/1") serves the least

    arrival - b(S)        with        b(S) = -ln(1 - exp(-gamma S)) / gamma

S being the service. For small gamma this is the order of S, for large gamma that of arrival; in between a request is
ahead of one that is e times longer unless it came 1 / gamma rounds later.

gamma follows the load here, so the number is taken times gamma, and rounds are counted on a clock that runs at gamma:

    age(arrival) + ln((1 - exp(-gamma S)) / gamma),        age(t) the sum of gamma over all rounds until t

(about age + ln S). While gamma stays this is the same order. When it changes, the numbers of those that wait stay
comparable with those of who comes, as far as gamma S is small; so nobody has to be placed anew at once.

b is its own inverse. So the same rule can be said in units of service: a request that aged by a is placed as if its
service were S exp(-a), as long as this is short against 1 / gamma.
"""

from __future__ import annotations

from collections.abc import Sized
from math import exp, expm1, inf, log, log1p

from laps_sd.scheduler.policies.population import Population
from laps_sd.scheduler.service import PrefillSteps
from laps_sd.scheduler.settings import Settings

#: Service below this (verify steps) is boosted like this much: a logarithm of nothing is no number.
_LEAST_SERVICE = 1e-3
#: exp(-x) is nothing beyond.
_MOST_EXPONENT = 700.0
#: The rate follows the queue when it is off by this factor.
_STEP = 1.25
#: Slots' worth of waiting requests that are assumed of an empty queue.
_OWN_SHARE = 0.25


def boost(service: float, rate: float) -> float:
    """Rounds by which a request of this service is placed before its arrival, at ``rate`` (gamma) above 0."""
    x = rate * max(service, _LEAST_SERVICE)
    return -log(-expm1(-x)) / rate if x < _MOST_EXPONENT else 0.0


class Boost:
    """The rate gamma, following the load, and what it does to perceived service.

    1 / gamma is the time in which the queue drains, in rounds, divided by `Settings.tail`: that is how far apart
    requests can be that compete. It follows from the number that waits and the service of finished requests; no clock
    is asked, so every rank finds the same.

    Where launches cost nothing, and with one slot, running requests give way at any moment, which does for short
    requests what their boost would; then waiting counts nothing (measured with one slot: 1 to 3 % of the mean).

    Attributes
    ----------
    rate : float
        gamma, per round; 0: waiting counts nothing.
    age : float
        Sum of gamma over all rounds so far.
    """

    def __init__(self, settings: Settings, population: Population, prefill: PrefillSteps, waiting: Sized) -> None:
        placed = settings.seeded and settings.index != "attained"
        self._tail = settings.tail if placed else 0.0
        self._population = population
        self._prefill = prefill
        self._waiting = waiting
        self.rate = self.age = 0.0
        self.follow()

    def pass_rounds(self, rounds: int) -> None:
        """Let everybody who is here age."""
        self.age += self.rate * rounds

    def follow(self) -> bool:
        """Let the rate follow the queue; return whether it changed."""
        if self._tail == 0 or self._prefill.per_batch == 0 or self._prefill.slots == 1:
            changed, self.rate = self.rate > 0, 0.0
            return changed
        drain = self._population.steps_per_request * (_OWN_SHARE + len(self._waiting) / self._prefill.slots)
        rate = self._tail / max(drain, 1.0)
        if rate / _STEP < self.rate < rate * _STEP:
            return False
        self.rate = rate
        return True

    def born(self, later: float = 0.0) -> float:
        """Return the age that counts as the arrival of who comes now, or so many rounds later."""
        return self.age + self.rate * later

    def place(self, service: float, born: float) -> float:
        """Return the place of a request in the order; its service where waiting counts nothing."""
        return born + self._log_service(service) if self.rate else service

    def discounted(self, service: float, born: float) -> float:
        """Return the service of a request that has just come and is placed like this one, which came earlier."""
        if not self.rate:
            return service
        y = self._log_service(service) + born - self.age
        share = self.rate * exp(y) if y < _MOST_EXPONENT else inf
        return -log1p(-share) / self.rate if share < 1 else inf  # inf: it counts as not having arrived

    def overtaken_at_most(self, service: float) -> float:
        """Return the rounds after its arrival from which nobody who comes goes before a request of this service.

        For a rate that stays: even the shortest request that comes later is placed behind it.
        """
        return boost(0.0, self.rate) - boost(service, self.rate) if self.rate else inf

    def _log_service(self, service: float) -> float:
        """Return about the logarithm of the service: minus gamma times its boost, but for a constant."""
        x = self.rate * max(service, _LEAST_SERVICE)
        return (log(-expm1(-x)) if x < _MOST_EXPONENT else 0.0) - log(self.rate)
