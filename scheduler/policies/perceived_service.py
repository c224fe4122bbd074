"""Perceived service: the verify steps that a request is believed to need still.

It follows from the length distribution, conditioned on the tokens produced, and from the acceptance posterior. Where
the request has no prediction, or predictions are not trusted, the statistics of all requests stand in.
"""

from __future__ import annotations

from laps_sd.scheduler.policies.population import Population
from laps_sd.scheduler.service import PrefillSteps
from laps_sd.scheduler.settings import Settings
from laps_sd.scheduler.state import RequestState
from laps_sd.scheduler.survival import SurvivalCurve


class PerceivedService:
    """Estimates of what a request has still to do.

    Parameters
    ----------
    settings : Settings
        Among them the index: the number that stands for the distribution of the remaining tokens.
    population : Population
        Statistics of all requests.
    prefill : PrefillSteps
        What the prefill that it needs costs.
    """

    def __init__(self, settings: Settings, population: Population, prefill: PrefillSteps) -> None:
        self._settings = settings
        self._population = population
        self._prefill = prefill
        self._left_of_curve = SurvivalCurve.gittins if settings.index == "gittins" else SurvivalCurve.mean

    def of(self, state: RequestState) -> float:
        """Return the remaining service in verify steps, the prefill that it needs included."""
        return self.tokens_left(state) * self.steps_per_token(state) + self._prefill.service(state.prefill_tokens)

    def tokens_left(self, state: RequestState) -> float:
        """Return the index of the remaining tokens, averaged over the prediction and the population.

        The weight of the prediction is the trust in it times the chance that it gave the request to live so long
        (Bayesian model averaging of the two curves).
        """
        if state.runs_to_limit:
            return float(state.limit_left)
        g, cap, trust = state.generated, state.max_new_tokens, self.trust_in(state)
        if state.prediction is None or trust == 0:
            return self._population.tokens_left(g, cap)
        refined = state.refinements[-1] if state.refinements else None
        curve = state.prediction.length if refined is None else refined.curve
        own = self._left_of_curve(curve, g, cap)
        if trust == 1:
            return own
        lengths = self._population.lengths
        weight, common = trust * curve.survive(g), (1 - trust) * lengths.survive(g)
        if refined is not None:  # both are asked about what follows the tokens that it has read
            weight, common = weight / curve.survive(refined.at), common / lengths.survive(refined.at)
        weight /= weight + common
        return weight * own + (1 - weight) * self._population.tokens_left(g, cap)

    def steps_per_token(self, state: RequestState) -> float:
        """Return E[1/m] of its own posterior, or of all requests as far as its prior is not to be believed."""
        population = self._population
        own, trust = state.posterior.steps_per_token(), 0.0 if state.prediction is None else population.trust
        observed = state.steps / (state.steps + self._settings.own_steps)
        # Where launches are free, whoever turns out misplaced gives way at once, and needs no caution at arrival.
        worth = max(population.acceptance.value, observed) if self._prefill.per_batch else 1.0
        if worth < 1 and state.prediction is not None:
            own = own**worth * population.accept_length ** (worth - 1)
        if trust == 1:
            return own
        weight = max(trust, observed if population.experienced else 0.0)
        return weight * own + (1 - weight) / population.accept_length

    def steps_to_end(self, state: RequestState) -> float:
        """Return the expected verify steps to its end, by the curve that is believed; an index is more hopeful."""
        return self.tokens_to_end(state) * self.steps_per_token(state)

    def tokens_to_end(self, state: RequestState) -> float:
        """Return the expected tokens to its end, by the curve that is believed."""
        if state.runs_to_limit:
            return float(state.limit_left)
        return self.curve(state).mean(state.generated, state.max_new_tokens)

    def trust_in(self, state: RequestState) -> float:
        """Return how far the request's predicted or refined length is believed, 0 to 1."""
        if state.prediction is None or not self._settings.use_length:
            return 0.0
        if state.refinements:
            return self._population.trust_at(state.refinements[-1].at)
        return self._population.trust

    def curve(self, state: RequestState) -> SurvivalCurve:
        """Return its predicted length, or that of all requests where there is none to believe."""
        if state.prediction is None or self.trust_in(state) == 0:
            return self._population.lengths
        return state.refinements[-1].curve if state.refinements else state.prediction.length
