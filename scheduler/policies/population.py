"""What finished requests taught: how long requests are, how well drafts do, and how far predictions can be trusted."""

from __future__ import annotations

from bisect import bisect_right
from math import log, sqrt

import numpy as np

from laps_sd.scheduler.settings import Settings
from laps_sd.scheduler.state import RequestState
from laps_sd.scheduler.survival import SurvivalCurve

_EDGES = [0, *np.unique(np.geomspace(8, 32768, 39).astype(int)).tolist()]
_PRIOR_MEAN = 256.0  # tokens: memoryless, so that without evidence requests are served first come, first served
_PRIOR_ENDS = 4.0  # requests whose end that prior is worth, in every bucket
_PRIOR_DEPARTED = 4  # requests that the prior of their steps is worth
_SMOOTHING = np.ones(9)  # neighbouring buckets that share their evidence
_PRIOR_CORRELATION = 0.5  # of a predictor worth deploying
_TELLING_SPREAD = 0.5  # standard deviation of log predicted steps from which every finished request counts fully
_MOST_CAPS = 1000  # limits of output tokens whose answer is remembered
_LOOK_EVERY = 16  # finished requests between two looks at the evidence, at first


class Population:
    """Running statistics over requests, the same on every rank because every rank sees the same requests finish.

    Attributes
    ----------
    lengths : SurvivalCurve
        Output length of all requests: hazards per bucket from requests that passed it, finished or not.
    accept_length : float
        Tokens per verify step of all requests, as of the last look.
    steps_per_request : float
        Verify steps after which a request leaves its slot, ended or cut, on average over the last ones.
    experienced : bool
        Whether enough requests finished for a first look.
    trust : float
        0 to 1: how far predictions are believed, from the correlation of log predicted and log real steps.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._at_risk = [0.0] * len(_EDGES)
        self._ended = [0.0] * len(_EDGES)
        self._moments = np.zeros(6)  # n, Σx, Σy, Σxx, Σyy, Σxy
        self._total_tokens = settings.accept_length * settings.accept_strength
        self._total_steps = settings.accept_strength
        self._exposed_tokens = self._total_tokens  # of those that might have ended by themselves at any of them
        self._finished = 0
        self._next_look = _LOOK_EVERY
        self.lengths = SurvivalCurve.exponential(_PRIOR_MEAN, _EDGES[1:])
        self.accept_length = settings.accept_length
        self.steps_per_request = _PRIOR_MEAN / settings.accept_length
        self._departed = float(_PRIOR_DEPARTED)
        self.experienced = False
        self._at_start: dict[int | None, float] = {}  # tokens left of those that produced none, by cap
        self.trust = settings.most_trust if settings.trust else 1.0

    def tokens_left(self, g: int, cap: int | None) -> float:
        """Remaining tokens, by the index of the settings, if nothing is known but the ``g`` tokens produced."""
        if not self.experienced:  # memoryless, exactly: first come, first served
            return min(_PRIOR_MEAN, max(cap - g, 0)) if cap is not None else _PRIOR_MEAN
        if g == 0 and cap in self._at_start:
            return self._at_start[cap]
        curve = self.lengths
        left = curve.gittins(g, cap) if self._settings.index == "gittins" else curve.mean(g, cap)
        if g == 0 and len(self._at_start) < _MOST_CAPS:  # most that wait, and few limits are in use
            self._at_start[cap] = left
        return left

    def observe_step(self, tokens: int, *, natural: bool = True) -> None:
        """Count one verify step; not ``natural``: of a request that cannot end by itself."""
        self._total_tokens += tokens
        self._total_steps += 1
        if natural:
            self._exposed_tokens += tokens

    def observe_progress(self, state: RequestState) -> None:
        """Count the request at risk in every bucket that it has reached.

        Not one that runs to its limit: that it goes on says nothing of how long answers are.
        """
        if state.runs_to_limit:
            return
        reached = bisect_right(_EDGES, state.generated) - 1
        for bucket in range(state.risk_bucket + 1, reached + 1):
            self._at_risk[bucket] += 1
        state.risk_bucket = reached

    def observe_departure(self, state: RequestState) -> None:
        """Count the request as gone, however it ended."""
        self.observe_progress(state)
        if state.generated > 0:
            self._departed = min(self._departed + 1, float(self._settings.memory))
            self.steps_per_request += (state.steps - self.steps_per_request) / self._departed

    def observe_finish(self, state: RequestState) -> bool:
        """Learn from a request that ended by itself; return whether it is time to place everybody anew."""
        self.observe_departure(state)
        self._ended[state.risk_bucket] += 1
        self._compare(state, state.steps)
        return self._count_and_look()

    def observe_cut(self, state: RequestState) -> bool:
        """Learn from an answer that its limit cut; return whether it is time to place everybody anew.

        It counts against its prediction alone: where the prediction gave it less than an even chance to live so long.
        Its length is then taken for the limit and what is expected beyond it, by the average of prediction and
        population that ranks too. Whoever was expected to reach the limit, and did, is left out: prediction and length
        would agree by the limit alone, and limits that differ would pass for skill.
        """
        self.observe_departure(state)
        if state.prediction is not None and state.generated > 0:
            g, curve = state.generated, state.prediction.length
            own, common = self.trust * curve.survive(g), (1 - self.trust) * self.lengths.survive(g)
            if curve.survive(g) < 0.5:
                weight = own / (own + common) if own + common > 0 else 0.0
                beyond = weight * curve.mean(g) + (1 - weight) * self.lengths.mean(g)
                self._compare(state, state.steps * (1 + beyond / g))
        return self._count_and_look()

    def _compare(self, state: RequestState, steps: float) -> None:
        """Add one pair of predicted and real steps, where there was a prediction of ours to be judged."""
        if state.predicted_steps <= 0 or steps <= 0:
            return
        x, y = log(state.predicted_steps), log(steps)
        self._moments *= 1 - 1 / self._settings.memory
        self._moments += (1, x, y, x * x, y * y, x * y)

    def _count_and_look(self) -> bool:
        self._finished += 1
        if self._finished < self._next_look:
            return False
        self._next_look += max(_LOOK_EVERY, min(self._finished // 8, self._settings.memory))
        self._look()
        return True

    def correlation(self) -> float:
        """Correlation of log predicted and log real steps, shrunk towards a good one while there is little evidence.

        Finished requests whose predictions were all alike say little about how well others are ranked: evidence
        counts by the spread of the predictions.
        """
        n, x, y, xx, yy, xy = self._moments
        if n < 3:
            return _PRIOR_CORRELATION
        spread_x, spread_y = xx - x * x / n, yy - y * y / n
        r = (xy - x * y / n) / sqrt(spread_x * spread_y) if min(spread_x, spread_y) > 1e-9 else 0.0
        weight, prior = min(n, spread_x / _TELLING_SPREAD**2), self._settings.trust_prior
        return float((weight * r + prior * _PRIOR_CORRELATION) / max(weight + prior, 1e-9))

    def _look(self) -> None:
        self.experienced = True
        self.accept_length = max(self._total_tokens / self._total_steps, 1.0)
        if self._settings.trust:
            low, high = self._settings.trust_low, self._settings.trust_high
            share = min(max((self.correlation() - low) / (high - low), 0.0), 1.0)
            self.trust = share * self._settings.most_trust
        widths = np.diff(_EDGES)
        ended = np.convolve(self._ended[:-1], _SMOOTHING, "same")
        survived_half = (
            np.array(self._at_risk) - np.array(self._ended) / 2
        )  # whoever ended was there half of the bucket
        exposed = np.convolve(widths * survived_half[:-1], _SMOOTHING, "same")
        # Where few requests were seen the hazard is that of a memoryless length with the mean of all: no reason to
        # believe that who has run long is nearer to the end, or farther from it.
        mean = (self._exposed_tokens + _PRIOR_MEAN) / (sum(self._ended) + 1)
        hazard = (ended + _PRIOR_ENDS) / (exposed + _PRIOR_ENDS * mean)
        survival = np.exp(-np.cumsum(np.concatenate([[0.0], hazard * widths])))
        self.lengths = SurvivalCurve(_EDGES, survival)
        self._at_start.clear()
        if self._at_risk[0] > self._settings.memory * 4:
            self._at_risk = [v / 2 for v in self._at_risk]
            self._ended = [v / 2 for v in self._ended]
            self._total_tokens, self._total_steps = self._total_tokens / 2, self._total_steps / 2
            self._exposed_tokens /= 2
