"""Who gives way to whom: see also `test_laps_sd.py`, where it is seen from outside."""

import pytest

from laps_sd.scheduler import CostModel, Prediction, Settings, SurvivalCurve, new_request
from laps_sd.scheduler.policies.laps_sd import LapsSd


def test_a_running_request_that_may_not_be_taken_is_passed_over() -> None:
    policy = LapsSd()
    for number, length in enumerate((3000, 2000, 10)):
        prediction = Prediction(SurvivalCurve.lognormal(length, 0.3), 2.0, 8.0)
        policy.on_arrival(new_request(number, 5, settings=policy.settings, prediction=prediction))
    longest, long, short = policy._waiting.values()
    for state in (longest, long):
        policy.on_admit(state)
    assert policy.victim(short, [long]) is long
    assert policy.victim(short, []) is None


def crowd(policy, lengths):
    for number, length in enumerate(lengths):
        prediction = Prediction(SurvivalCurve.lognormal(length, 0.3), 2.0, 8.0)
        policy.on_arrival(new_request(number, 5, settings=policy.settings, prediction=prediction))
    return list(policy._waiting.values())


@pytest.mark.parametrize(
    ("ride", "launching", "swaps"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_with_many_slots_a_swap_pays_only_where_a_launch_is_under_way(ride, launching, swaps):
    policy = LapsSd(Settings(ride=ride), CostModel(prefill_s=1.0), slots=8)
    long, *rest = crowd(policy, (3000, *(20 for _ in range(12))))
    policy.on_admit(long)
    policy.engine.launching = launching
    assert (policy.victim(rest[0], [long]) is long) == swaps


def test_a_return_that_computes_all_again_is_on_the_bill_of_a_ride():
    policy = LapsSd(Settings(), CostModel(prefill_s=1.0, prefill_s_per_token=0.01), slots=8)
    long, *rest = crowd(policy, (3000, *(20 for _ in range(12))))
    policy.on_admit(long)
    for _ in range(100):
        policy.on_step(long, 1, 5, 2)
    policy.engine.launching = True
    assert policy.victim(rest[0], [long]) is None or policy.engine.keeps_kv
    policy.engine.keeps_kv = False
    assert policy.victim(rest[0], [long]) is None


def test_a_request_bears_one_ride_for_every_slotful_that_waits():
    policy = LapsSd(Settings(), CostModel(prefill_s=1.0), slots=8)
    long, *rest = crowd(policy, (3000, *(20 for _ in range(17))))
    policy.on_admit(long)
    policy.engine.launching = True
    long.preemptions = 1
    assert policy.victim(rest[0], [long]) is long, "17 wait: two slotfuls"
    long.preemptions = 2
    assert policy.victim(rest[0], [long]) is None


@pytest.mark.parametrize(("slots", "swaps"), [(1, True), (2, True), (4, False)])
def test_a_swap_with_a_launch_of_its_own_pays_with_few_slots(slots, swaps):
    # Of a bill for (slots + 12) requests: with 4 slots it is below E[steps] · 12 / slots², and above a quarter of that.
    policy = LapsSd(Settings(output_length=400.0), CostModel(prefill_s=0.8), slots=slots)
    long, *rest = crowd(policy, (3000, *(20 for _ in range(12))))
    policy.on_admit(long)
    bill = policy._rule._bill(long)
    assert bill < policy.population.steps_per_request / slots**2 * len(policy._waiting)
    assert (policy.victim(rest[0], [long]) is long) == swaps
