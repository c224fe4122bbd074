"""The clairvoyant reference that pays attention to cost: the same rules as ``laps-sd``, with true sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from laps_sd.scheduler.policies.laps_sd import LapsSd
from laps_sd.scheduler.policies.perceived_service import PerceivedService
from laps_sd.scheduler.policies.queues import Queues
from laps_sd.scheduler.service import CostModel
from laps_sd.scheduler.settings import Settings
from laps_sd.scheduler.state import RequestState

#: Least mean, and no doubt about any size: no hysteresis, nothing refreshed late, nobody spared.
_CERTAIN: dict[str, Any] = {
    "index": "remaining",
    "seeded": True,
    "margin": 1.0,
    "blind_margin": 1.0,
    "protect_steps": 0.0,
    "max_preemptions": 1_000_000,
    "patience": 1e12,
    "refresh_steps": 1,
    "tail": 0.0,
    "weigh_acceptance": False,
    "use_posterior": False,
    "trust": False,
    "ride": True,
    "gather": True,
    "preemption": True,
}


class _TrueService(PerceivedService):
    """What a request has still to do, told by the replay."""

    def of(self, state: RequestState) -> float:
        return self.steps_to_end(state) + self._prefill.service(state.prefill_tokens)

    def steps_to_end(self, state: RequestState) -> float:
        if state.true_steps is None:
            raise ValueError("oracle-ride needs the true number of verify steps, which only a replay knows")
        return float(state.true_steps - state.steps)


class _EveryServiceItsQueue:
    """Queues without width: the order of service is the order of the queues."""

    def of(self, service: float) -> float:
        return service


class OracleRide(LapsSd):
    """Clairvoyant shortest remaining service that preempts where it pays, rides in launches and fills slots together.

    Where prefill is free it is ``oracle-srpt``; where it costs, ``oracle-srpt`` pays for a launch at every preemption
    and may be worse than fcfs, and this one is what a policy can be measured against. A reference, and no bound.
    """

    name = "oracle-ride"
    clairvoyant = True

    def __init__(self, settings: Settings | None = None, cost: CostModel | None = None, slots: int = 1) -> None:
        super().__init__(replace(settings or Settings(), **_CERTAIN), cost, slots)
        self.queues = cast(Queues, _EveryServiceItsQueue())
        self._service = _TrueService(self.settings, self.population, self.prefill)
        self._rule = type(self._rule)(self, self._service, self._waiting)
