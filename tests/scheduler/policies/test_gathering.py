"""Freed slots that are filled together."""

import pytest

from laps_sd.scheduler import CostModel, Prediction, Settings, SurvivalCurve, new_request
from laps_sd.scheduler.policies.laps_sd import LapsSd


def policy_of(slots, launch, **changes):
    """A policy that assumes what it does before requests finished: 128 steps a request."""
    return LapsSd(Settings(**changes), CostModel(prefill_s=launch), slots)


def waiting(policy, number=0):
    prediction = Prediction(SurvivalCurve.lognormal(100, 0.3), 2.0, 16.0)
    state = new_request(number, 10, settings=policy.settings, prediction=prediction)
    policy.on_arrival(state)
    return state


@pytest.mark.parametrize(("slots", "launch", "together"), [(2, 1.0, 1), (4, 1.0, 1), (16, 1.0, 2), (64, 1.0, 7)])
def test_many_slots_are_filled_several_at_a_time_and_few_at_once(slots, launch, together):
    policy = policy_of(slots, launch)
    front = waiting(policy)
    filled = next(free for free in range(1, slots) if not policy.gathers(front, free, 1000, slots - free))
    assert filled == together


def test_free_launches_are_not_waited_for():
    policy = policy_of(64, 0.0)
    assert not policy.gathers(waiting(policy), 1, 1000, 63)


def test_an_empty_machine_is_filled_at_once():
    policy = policy_of(64, 1.0)
    assert not policy.gathers(waiting(policy), 64, 1000, 0)


def test_whoever_can_start_with_all_others_starts_at_once():
    policy = policy_of(64, 1.0)
    assert not policy.gathers(waiting(policy), 3, 3, 61)
    assert policy.gathers(waiting(policy, 1), 3, 4, 61)


def test_slots_do_not_stay_empty_for_longer_than_a_launch_is_worth():
    policy = policy_of(16, 1.0)
    front, rounds = waiting(policy), 0
    while policy.gathers(front, 1, 50, 15):
        policy.start_round()
        rounds += 1
        assert rounds <= 1.5 * 16 + 1
    assert rounds > 1


def test_who_is_overdue_is_not_kept_waiting_for_others():
    policy = policy_of(16, 1.0)
    front = waiting(policy)
    assert policy.gathers(front, 1, 50, 15)
    front.overdue = True
    assert not policy.gathers(front, 1, 50, 15)


def test_it_can_be_turned_off():
    policy = policy_of(64, 1.0, gather=False)
    assert not policy.gathers(waiting(policy), 1, 1000, 63)
