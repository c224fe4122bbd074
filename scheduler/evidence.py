"""What finished requests taught: how long requests are, how well drafts do, and how far predictions can be trusted."""

from __future__ import annotations

from bisect import bisect_right
from math import log, sqrt

import numpy as np

from laps_sd.scheduler.settings import Settings
from laps_sd.scheduler.state import RequestState
from laps_sd.scheduler.survival import SurvivalCurve

_EDGES = [0, *np.unique(np.geomspace(8, 32768, 30).astype(int)).tolist()]
_PRIOR_MEAN = 256.0  # tokens: memoryless, so that without evidence requests are served first come, first served
_PRIOR_WEIGHT = 8.0  # requests at risk, per bucket


class Evidence:
    """Running statistics over requests, the same on every rank because every rank sees the same requests finish.

    Attributes
    ----------
    population : SurvivalCurve
        Output length of all requests: hazards per bucket from requests that passed it, finished or not.
    accept_length : float
        Tokens per verify step of all requests.
    trust : float
        0 to 1: how far predictions are believed, from the correlation of log predicted and log real steps.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._at_risk = [0.0] * len(_EDGES)
        self._ended = [0.0] * len(_EDGES)
        self._moments = np.zeros(6)  # n, Σx, Σy, Σxx, Σyy, Σxy
        self._tokens = settings.accept_length * settings.accept_strength
        self._steps = settings.accept_strength
        self._finished = 0
        self._next_look = 16
        self.population = SurvivalCurve.exponential(_PRIOR_MEAN, _EDGES[1:])
        self.trust = 1.0

    @property
    def accept_length(self) -> float:
        return self._tokens / self._steps

    def passed(self, state: RequestState) -> None:
        """Count the request at risk in every bucket that it has reached."""
        reached = bisect_right(_EDGES, state.generated) - 1
        for bucket in range(state.risk_bucket + 1, reached + 1):
            self._at_risk[bucket] += 1
        state.risk_bucket = reached

    def finished(self, state: RequestState) -> bool:
        """Learn from a request that ended by itself; return whether it is time to place everybody anew."""
        self.passed(state)
        self._ended[state.risk_bucket] += 1
        self._tokens += state.generated
        self._steps += state.steps
        if state.predicted_steps > 0 and state.steps > 0:
            x, y = log(state.predicted_steps), log(state.steps)
            self._moments *= 1 - 1 / self._settings.memory
            self._moments += (1, x, y, x * x, y * y, x * y)
        self._finished += 1
        if self._finished < self._next_look:
            return False
        self._next_look += min(self._next_look, self._settings.memory // 2)
        self._look()
        return True

    def correlation(self) -> float:
        """Correlation of log predicted and log real steps, shrunk towards a good one while there is little evidence."""
        n, x, y, xx, yy, xy = self._moments
        prior = self._settings.trust_prior
        if n < 3:
            return 0.5
        spread = (xx - x * x / n) * (yy - y * y / n)
        r = (xy - x * y / n) / sqrt(spread) if spread > 1e-12 else 0.0
        return float((n * r + prior * 0.5) / (n + prior))

    def _look(self) -> None:
        if self._settings.trust:
            low, high = self._settings.trust_low, self._settings.trust_high
            self.trust = min(max((self.correlation() - low) / (high - low), 0.0), 1.0)
        survival = [1.0]
        for i in range(len(_EDGES) - 1):
            prior_hazard = 1 - (1 - 1 / _PRIOR_MEAN) ** (_EDGES[i + 1] - _EDGES[i])
            hazard = (self._ended[i] + _PRIOR_WEIGHT * prior_hazard) / (self._at_risk[i] + _PRIOR_WEIGHT)
            survival.append(survival[-1] * (1 - hazard))
        self.population = SurvivalCurve(_EDGES, survival)
        if self._at_risk[0] > self._settings.memory * 4:
            self._at_risk = [v / 2 for v in self._at_risk]
            self._ended = [v / 2 for v in self._ended]
