"""Waiting against service: boosted arrival, and the rate that follows the queue."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps_sd.scheduler import CostModel, Prediction, Settings, SurvivalCurve, new_request
from laps_sd.scheduler.policies.boost import boost
from laps_sd.scheduler.policies.laps_sd import LapsSd
from laps_sd.scheduler.policies.peers import BoostPredicted, HrrnPredicted

COSTLY = CostModel(prefill_s=0.5)

rates = st.floats(1e-5, 10)
services = st.floats(0.1, 5000)


def policy_with(**changes):
    return LapsSd(Settings(**changes), COSTLY, slots=4)


def arrive(policy, number, tokens, *, batch=False):
    prediction = Prediction(SurvivalCurve.lognormal(tokens, 0.3), 2.0, 16.0)
    state = new_request(number, 10, settings=policy.settings, prediction=prediction, batch=batch)
    policy.on_arrival(state)
    return state


@given(services, rates)
def test_the_boost_is_its_own_inverse(service, rate):
    once = boost(service, rate)
    if once > 1e-2 and rate * service < 20 and rate * once < 20:  # beyond, nothing is left of the smaller of the two
        assert boost(once, rate) == pytest.approx(service, rel=1e-3, abs=1e-3)


@given(services, services, rates)
def test_of_two_that_come_together_the_shorter_goes_first(one, other, rate):
    if one < other:
        assert boost(one, rate) >= boost(other, rate)


@settings(max_examples=50, deadline=None)
@given(st.floats(5, 3000), st.floats(5, 3000), st.integers(0, 20_000))
def test_discounted_service_says_the_same_as_boosted_arrival(one, other, later):
    policy = policy_with(tail=0.05)
    first = arrive(policy, 0, one)
    policy.start_round(later)
    second = arrive(policy, 1, other)
    for state in (first, second):
        policy.place(state)
    mine, theirs = (policy.discounted(s, s.perceived_service) for s in (first, second))
    if abs(mine - theirs) > 1e-6 * max(mine, theirs):
        assert (mine < theirs) == (first.key < second.key)


@settings(max_examples=50, deadline=None)
@given(st.floats(5, 3000), st.floats(1, 3000), st.floats(0.005, 5))
def test_who_comes_later_than_the_bound_never_goes_first(mine, theirs, tail):
    policy = policy_with(tail=tail, patience=1e9)
    waits = arrive(policy, 0, mine)
    bound = policy.boost.overtaken_at_most(waits.perceived_service)
    policy.start_round(int(bound) + 2)
    rate = policy.boost.rate
    late = arrive(policy, 1, theirs)
    if policy.boost.rate != rate:  # the bound is that of a rate that stays
        return
    policy.place(waits)
    assert waits.key < late.key


def test_a_large_tail_is_first_come_first_served_and_none_is_shortest_first():
    for tail, expected in ((1e5, [0, 1, 2]), (0.0, [2, 1, 0])):
        policy = policy_with(tail=tail)
        queue = []
        for number, tokens in enumerate((900, 300, 30)):
            queue.append(arrive(policy, number, tokens))
            policy.start_round(20)
        policy.rank(queue)
        assert [state.arrival for state in queue] == expected


def test_the_rate_falls_as_the_queue_grows_and_places_by_different_rates_stay_comparable():
    policy = policy_with(tail=0.1)
    before = policy.boost.rate
    states = [arrive(policy, number, 150 if number % 2 == 0 else 100) for number in range(64)]
    assert policy.boost.rate < before / 10
    keys = {tokens: [s.key for s in states if (s.arrival % 2 == 0) == (tokens == 150)] for tokens in (100, 150)}
    assert max(keys[100]) < min(keys[150])
    moved = []
    for state in states:
        was = state.key[2]
        policy.place(state)
        moved.append(abs(state.key[2] - was))
    assert max(moved) < 0.2, "the logarithm of a fifth of the service, for what was placed when the queue was empty"


def test_who_waited_while_the_queue_was_short_has_aged_faster():
    policy = policy_with(tail=0.1)
    ages = []
    for crowd in (0, 64):
        for number in range(crowd):
            arrive(policy, number, 100)
        began = policy.boost.age
        policy.start_round(10)
        ages.append(policy.boost.age - began)
    assert ages[0] > 10 * ages[1] > 0


@pytest.mark.parametrize("changes", [{"tail": 0.0}, {"index": "attained"}, {"seeded": False}])
def test_without_a_tail_and_in_the_papers_queues_waiting_counts_nothing(changes):
    assert policy_with(**changes).boost.rate == 0


def test_where_launches_are_free_waiting_counts_nothing():
    policy = LapsSd(Settings(tail=0.1), CostModel.unit(), slots=4)
    assert policy.boost.rate == 0
    policy.set_cost(COSTLY, 4)
    arrive(policy, 0, 50)
    assert policy.boost.rate > 0, "it follows costs that were learned later"


def test_with_one_slot_waiting_counts_nothing():
    assert LapsSd(Settings(tail=0.1), COSTLY, slots=1).boost.rate == 0


def test_a_batch_request_lets_others_by_and_is_not_left_for_last():
    policy = policy_with(tail=5.0, batch_delay=200.0)
    batch = arrive(policy, 0, 100, batch=True)
    soon = arrive(policy, 1, 100)
    policy.start_round(1000)
    late = arrive(policy, 2, 100)
    queue = [batch, soon, late]
    policy.rank(queue)
    assert [state.arrival for state in queue] == [1, 0, 2]


def test_the_boost_peer_serves_the_short_first_unless_the_long_came_long_ago():
    policy = BoostPredicted()
    old, short = arrive(policy, 0, 1000), arrive(policy, 1, 10)
    assert short.key < old.key
    policy.start_round(1_000_000)
    assert old.key < arrive(policy, 2, 10).key


def test_hrrn_predicted_lets_a_long_one_that_waited_go_before_a_short_new_one():
    policy = HrrnPredicted()
    long, short = arrive(policy, 0, 1000), arrive(policy, 1, 10)
    policy.start_round(1)
    queue = [long, short]
    policy.rank(queue)
    assert queue[0] is short
    policy.start_round(100_000)
    queue = [arrive(policy, 2, 10), long]
    policy.rank(queue)
    assert queue[0] is long
