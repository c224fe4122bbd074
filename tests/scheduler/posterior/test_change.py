"""Acceptance that changes in mid-request: a context limit of the draft model, text of another kind."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps_sd.scheduler.posterior.factory import make_posterior
from laps_sd.scheduler.posterior.settings import PosteriorSettings

KINDS = ("shrunken", "beta", "dirichlet")
#: What `laps-sd train` fits: a prior worth more steps than a discounted sum can hold.
FITTED = {"discount": 0.98, "dispersion": 1.0, "drift": 0.11}


def confident(kind):
    return make_posterior(3.0, 68.0, PosteriorSettings(kind=kind, **FITTED), max_correct_drafts=5)


@pytest.mark.parametrize("kind", KINDS)
class TestNothingIsAcceptedAnyMore:
    def test_belief_follows_within_some_tens_of_steps(self, kind):
        posterior = confident(kind)
        for _ in range(64):
            posterior.update(0, 5)
        assert posterior.mean() < 1.25
        for _ in range(1936):
            posterior.update(0, 5)
        assert posterior.mean() < 1.1

    def test_the_interval_holds_the_truth_after_some_tens_of_steps(self, kind):
        posterior = confident(kind)
        for step in range(1, 201):
            posterior.update(0, 5)
            low, _ = posterior.predictive_interval(0.8, 500)
            # Belief that is on its way down may be a little above for a few steps.
            assert step < 32 or low < 1.5
        assert low == 1.0

    def test_it_is_not_stable_while_belief_is_far_off(self, kind):
        posterior = confident(kind)
        for step in range(1, 201):
            posterior.update(0, 5)
            if step >= 24 and posterior.mean() > 1.5:
                assert not posterior.stable(0.5)
        assert posterior.stable(0.5)  # and it is again, once both agree


@pytest.mark.parametrize("kind", KINDS)
def test_belief_follows_upwards_too(kind):
    posterior = make_posterior(1.3, 68.0, PosteriorSettings(kind=kind, **FITTED), max_correct_drafts=5)
    for _ in range(64):
        posterior.update(5, 5)
    assert posterior.mean() > 5.0


@pytest.mark.parametrize("kind", KINDS)
def test_ordinary_steps_do_not_cost_the_prior_its_weight(kind):
    rng = np.random.default_rng(0)
    alpha = 0.7126  # 3.0 tokens per step with five drafts
    ends = []
    for _ in range(200):
        posterior = make_posterior(3.0, 68.0, PosteriorSettings(kind=kind, **FITTED), max_correct_drafts=5)
        for _ in range(100):
            posterior.update(int(min(rng.geometric(1 - alpha) - 1, 5)), 5)
        ends.append(posterior.mean())
    assert np.std(ends) < 0.25  # of a mean of a hundred steps alone it would be about 0.19


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), max_size=300))
@settings(max_examples=60, deadline=None)
def test_whatever_happens_belief_is_a_number_of_tokens_that_can_be(kind, steps):
    posterior = confident(kind)
    for k, n in steps:
        posterior.update(min(k, n), n)
        low, high = posterior.predictive_interval(0.8, 10)
        assert 1.0 <= low <= posterior.mean() <= high
        assert 0 < posterior.steps_per_token() <= 1
