"""When the requests of a run are sent."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from laps_sd.errors import InputError
from laps_sd.scheduler.simulator.workload import gamma_arrivals

#: ``burst``: all at once. ``poisson``: at random, at a rate. ``trace``: when they came before. ``closed``: each client
#: sends its next one when the last was answered.
Pattern = Literal["burst", "poisson", "trace", "closed"]
#: In what arrivals are timed: seconds, or rounds of the server's scheduler.
Clock = Literal["seconds", "rounds"]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """How requests arrive.

    Attributes
    ----------
    pattern : str
    clock : str
        A load in rounds is the same however fast the machine is at the moment.
    rate : float or None
        Requests per unit of the clock, for ``poisson``.
    load : float or None
        Instead of a rate: as a share of the capacity that a calibration run measures.
    burstiness : float
        Coefficient of variation of the gaps: 1 is Poisson, above 1 comes in bursts.
    clients : int
        For ``closed``.
    times : tuple of float, optional
        For ``trace``: seconds.
    """

    pattern: Pattern = "burst"
    clock: Clock = "seconds"
    rate: float | None = None
    load: float | None = None
    burstiness: float = 1.0
    clients: int = 1
    times: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if any(value is not None and value <= 0 for value in (self.rate, self.load)) or self.burstiness <= 0:
            raise InputError("the rate, the load and the burstiness must be positive")
        if self.pattern == "poisson" and (self.rate is None) == (self.load is None):
            raise InputError("Poisson arrivals need a rate or a load, and not both")
        if self.pattern != "poisson" and not (self.rate is None and self.load is None):
            raise InputError(f"a rate or a load means Poisson arrivals, not {self.pattern}; drop one of them")
        if self.pattern == "trace" and not self.times:
            raise InputError("the trace has no arrival_s, so its own times cannot be had; give a rate or a load")
        if self.clients < 1:
            raise InputError("a closed loop needs at least 1 client")

    @property
    def senders(self) -> int | None:
        """Clients of a closed loop; None where requests come at times of their own."""
        return self.clients if self.pattern == "closed" else None

    def described(self) -> dict[str, object]:
        """Return what a result says of them."""
        return {
            "arrivals": self.pattern, "clock": self.clock, "burstiness": self.burstiness, "clients": self.senders,
        }  # fmt: skip

    def at(self, n: int, seed: int, capacity: float | None = None) -> list[float]:
        """Return the arrival times of ``n`` requests, from 0 on.

        Parameters
        ----------
        capacity : float, optional
            Requests per unit of the clock that the server can do; needed for a load.
        """
        if self.pattern == "trace":
            assert self.times is not None
            return [time - self.times[0] for time in self.times[:n]]
        if self.pattern in ("burst", "closed"):
            return [0.0] * n
        rate = self.rate
        if rate is None:
            assert self.load is not None
            if capacity is None:
                raise ValueError("a load is a share of a capacity, which is not known")
            rate = self.load * capacity
        times = gamma_arrivals(n, rate, np.random.default_rng(seed), self.burstiness)
        return [float(t) for t in times - times[0]]


def of_rate(rate: float | None) -> Arrivals:
    """Return Poisson arrivals at ``rate`` per second, or all at once."""
    return Arrivals() if rate is None else Arrivals("poisson", rate=rate)


def trace_times(arrivals: Sequence[float | None]) -> tuple[float, ...] | None:
    """Return the arrival times of a trace; None where any is missing."""
    known = [t for t in arrivals if t is not None]
    return tuple(known) if known and len(known) == len(arrivals) else None
