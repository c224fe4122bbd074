"""The state of one request follows what happens to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps_sd.scheduler import Prediction, Settings, SurvivalCurve, new_request

PREDICTION = Prediction(SurvivalCurve.exponential(100), 3.5, 16.0)


def test_the_prompt_seeds_the_acceptance():
    assert new_request(0, 5, prediction=PREDICTION).posterior.mean() == pytest.approx(3.5)


@pytest.mark.parametrize("settings", [Settings(seeded=False), Settings(use_acceptance=False)])
def test_the_seed_can_be_switched_off(settings):
    state = new_request(0, 5, settings=settings, prediction=PREDICTION)
    assert state.posterior.mean() == pytest.approx(settings.accept_length)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6)), max_size=30))
def test_steps_and_tokens_add_up(steps):
    state = new_request(0, 7, prediction=PREDICTION)
    for k, tokens in steps:
        state.on_step(k, 5, tokens)
    assert state.steps == state.posterior.steps == len(steps)
    assert state.generated == sum(tokens for _, tokens in steps)
    assert state.context_tokens == 7 + state.generated


def test_without_the_posterior_steps_teach_nothing():
    state = new_request(0, 7, settings=Settings(use_posterior=False), prediction=PREDICTION)
    state.on_step(0, 5, 1)
    assert state.posterior.mean() == pytest.approx(3.5)
    assert state.steps == 1


def test_a_cached_prefix_need_not_be_computed():
    state = new_request(0, 100, cached_tokens=60)
    assert state.prefill_tokens == 40
    state.on_admit()
    assert state.prefill_tokens == 0
    assert state.recomputed_tokens == 0


@pytest.mark.parametrize(("kept", "recomputed"), [(0, 130), (100, 30), (130, 0), (10_000, 0)])
def test_what_a_preemption_loses_is_computed_again(kept, recomputed):
    state = new_request(0, 100)
    state.on_admit()
    for _ in range(10):
        state.on_step(2, 5, 3)
    state.on_preempt(kept, now=4)
    assert (state.preemptions, state.waiting_since) == (1, 4)
    assert state.prefill_tokens == recomputed
    state.on_admit()
    assert state.recomputed_tokens == recomputed


@pytest.mark.parametrize("wrong", [{"prompt_tokens": -1}, {"cached_tokens": -1}, {"max_new_tokens": -1}])
def test_negative_counts_are_refused(wrong):
    with pytest.raises(ValueError, match="must not be negative"):
        new_request(0, **{"prompt_tokens": 5, **wrong})
