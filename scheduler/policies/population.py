"""What finished requests taught about all: how long answers are, how well drafts do, how long a slot is held."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from laps_sd.scheduler.policies.trust import AcceptanceWorth, PredictionTrust
from laps_sd.scheduler.settings import Settings
from laps_sd.scheduler.state import RequestState
from laps_sd.scheduler.survival import SurvivalCurve

# Resolution of the length distribution: buckets that grow like the lengths themselves, each sharing its evidence with
# its neighbours (nine buckets span a factor of seven), so that a hazard rests on more than a handful of requests.
_EDGES = [0, *np.unique(np.geomspace(8, 32768, 39).astype(int)).tolist()]
_SMOOTHING = np.ones(9)
#: Limits of output tokens whose answer is remembered: the size of a cache.
_MOST_CAPS = 1000
#: Significant digits that are kept of a survival curve.
_DIGITS = 12
#: An even chance.
_EVEN = 0.5
#: Reviews come ever more rarely: after this share of the finished requests, up to the memory.
_REVIEW_SHARE = 8
#: Counts are halved when they exceed so many memories: the statistics fade, and never overflow.
_HALVED_AT = 4

#: Lengths are refined at a handful of places.
_MOST_REFINED = 64


class Population:
    """Running statistics over requests, the same on every rank because every rank sees the same requests finish.

    Attributes
    ----------
    lengths : SurvivalCurve
        Output length of all requests: hazards per bucket from requests that passed it, finished or not.
    accept_length : float
        Tokens per verify step of all requests, as of the last review.
    steps_per_request : float
        Verify steps after which a request leaves its slot, ended or cut, on average over the last ones.
    trust : float
        0 to 1: how far predictions are believed, as of the last review.
    experienced : bool
        Whether enough requests finished for a first review.
    predictions : PredictionTrust
        How the predictions of finished requests turned out.
    acceptance : AcceptanceWorth
        What their predicted acceptance was worth.
    refinements : dict of int to PredictionTrust
        By tokens read, how refined lengths turned out.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._at_risk = [0.0] * len(_EDGES)
        self._ended = [0.0] * len(_EDGES)
        self._total_tokens = settings.accept_length * settings.accept_strength
        self._total_steps = settings.accept_strength
        self._exposed_tokens = self._total_tokens  # of those that might have ended by themselves at any of them
        self._departed = settings.output_strength
        self._finished = 0
        self._next_review = settings.review_every
        self._left_of_curve = SurvivalCurve.gittins if settings.index == "gittins" else SurvivalCurve.mean
        self._at_start: dict[int | None, float] = {}  # tokens left of those that produced none, by cap
        self.lengths = SurvivalCurve.exponential(settings.output_length, _EDGES[1:])
        self.accept_length = settings.accept_length
        self.steps_per_request = settings.output_length / settings.accept_length
        self.experienced = False
        self.predictions = PredictionTrust(settings)
        self.trust = self.predictions.value
        self.acceptance = AcceptanceWorth(settings)
        self.refinements: dict[int, PredictionTrust] = {}
        self._untried = self.predictions.value

    def trust_at(self, tokens: int) -> float:
        """Return how far lengths are believed that were refined after so many tokens, 0 to 1."""
        known = self.refinements.get(tokens)
        return self._untried if known is None else known.value

    def tokens_left(self, g: int, cap: int | None) -> float:
        """Remaining tokens, by the index of the settings, if nothing is known but the ``g`` tokens produced."""
        if not self.experienced:  # memoryless, exactly: first come, first served
            mean = self._settings.output_length
            return min(mean, max(cap - g, 0)) if cap is not None else mean
        if g == 0 and cap in self._at_start:
            return self._at_start[cap]
        left = self._left_of_curve(self.lengths, g, cap)
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
        """Learn from a request that ended by itself; return whether the statistics were reviewed."""
        self.observe_departure(state)
        self._ended[state.risk_bucket] += 1
        self._compare(state, state.steps)
        self._compare_refined(state)
        prediction = state.prediction
        if prediction is not None and state.predicted_steps > 0 and state.steps > 0:
            length = prediction.length.mean(0, state.max_new_tokens)
            self.acceptance.observe(length, prediction.accept_length, state.steps)
        return self._count_and_review()

    def observe_cut(self, state: RequestState) -> bool:
        """Learn from an answer that its limit cut; return whether the statistics were reviewed.

        It counts against its prediction alone: where the prediction gave it less than an even chance to live so long.
        Its length is then taken for the limit and what is expected beyond it, by the average of prediction and
        population that ranks too. Whoever was expected to reach the limit, and did, is left out: prediction and length
        would agree by the limit alone, and limits that differ would pass for skill.
        """
        self.observe_departure(state)
        if state.prediction is not None and state.generated > 0:
            g, curve = state.generated, state.prediction.length
            own, common = self.trust * curve.survive(g), (1 - self.trust) * self.lengths.survive(g)
            if curve.survive(g) < _EVEN:
                weight = own / (own + common) if own + common > 0 else 0.0
                beyond = weight * curve.mean(g) + (1 - weight) * self.lengths.mean(g)
                self._compare(state, state.steps * (1 + beyond / g))
        return self._count_and_review()

    def _compare(self, state: RequestState, steps: float) -> None:
        """Add one pair of predicted and real steps, where there was a prediction of ours."""
        if state.predicted_steps > 0 and steps > 0:
            self.predictions.observe(state.predicted_steps, steps)

    def _compare_refined(self, state: RequestState) -> None:
        """Add a pair of refined and real tokens left for each time that the length was refined."""
        for refined in state.refinements:
            left = state.generated - refined.at
            if left > 0:
                if refined.at not in self.refinements and len(self.refinements) < _MOST_REFINED:
                    self.refinements[refined.at] = PredictionTrust(self._settings)
                if (trust := self.refinements.get(refined.at)) is not None:
                    trust.observe(refined.left(state.max_new_tokens), left)

    def _count_and_review(self) -> bool:
        self._finished += 1
        if self._finished < self._next_review:
            return False
        every, memory = self._settings.review_every, self._settings.memory
        self._next_review += max(every, min(self._finished // _REVIEW_SHARE, memory))
        self._review()
        return True

    def _review(self) -> None:
        self.experienced = True
        self.accept_length = max(self._total_tokens / self._total_steps, 1.0)
        self.predictions.review()
        self.trust = self.predictions.value
        self.acceptance.review()
        for trust in self.refinements.values():
            trust.review()
        self.lengths = self._curve()
        self._at_start.clear()
        if self._at_risk[0] > self._settings.memory * _HALVED_AT:
            self._at_risk = [v / 2 for v in self._at_risk]
            self._ended = [v / 2 for v in self._ended]
            self._total_tokens, self._total_steps = self._total_tokens / 2, self._total_steps / 2
            self._exposed_tokens /= 2

    def _curve(self) -> SurvivalCurve:
        """Survival from hazards per bucket, shrunk towards the memoryless length with the mean of all.

        Where few requests were seen there is no reason to believe that who has run long is nearer to the end, or
        farther from it. Whoever ended in a bucket was exposed to half of it.
        """
        widths = np.diff(_EDGES)
        ended = np.convolve(self._ended[:-1], _SMOOTHING, "same")
        survived_half = np.array(self._at_risk) - np.array(self._ended) / 2
        exposed = np.convolve(widths * survived_half[:-1], _SMOOTHING, "same")
        mean = (self._exposed_tokens + self._settings.output_length) / (sum(self._ended) + 1)
        strength = self._settings.output_strength
        hazard = (ended + strength) / (exposed + strength * mean)
        survival = np.exp(-np.cumsum(np.concatenate([[0.0], hazard * widths])))
        # Sums and exponentials of arrays differ in their last bits between processors, and every rank must agree.
        return SurvivalCurve(_EDGES, [float(f"{s:.{_DIGITS}g}") for s in survival])
