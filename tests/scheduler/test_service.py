"""The cost model: seconds of verify steps and prefills."""

import pytest

from laps_sd.scheduler import CostModel
from laps_sd.scheduler.service import PrefillSteps


def test_the_unit_model_counts_steps_and_nothing_else():
    unit = CostModel.unit()
    assert unit.tau(1) == unit.tau(64) == 1
    assert unit.prefill(10_000) == 0
    assert unit.plain_tau(8) is None


def test_a_step_is_free_of_the_batch_up_to_the_knee():
    cost = CostModel(step_s=0.02, step_s_per_request=0.001, free_requests=8)
    assert cost.tau(1) == cost.tau(8) == 0.02
    assert cost.tau(10) == pytest.approx(0.022)


def test_prefill_has_a_fixed_part_only_when_there_is_one():
    cost = CostModel(step_s=0.02, prefill_s=0.01, prefill_s_per_token=1e-4)
    assert cost.prefill(0) == 0
    assert cost.prefill(100) == pytest.approx(0.02)


def test_a_prefill_is_counted_in_the_verify_steps_that_it_takes():
    cost = CostModel(step_s=0.02, prefill_s=0.01, prefill_s_per_token=1e-4)
    steps = PrefillSteps(cost, 1)
    assert steps.service(100) == pytest.approx(0.5)
    assert steps.stall(100) == pytest.approx(1.0)
    steps.set(cost, 4)
    assert steps.service(100) == pytest.approx(2.0), "every slot stands still"
    assert PrefillSteps(CostModel.unit(), 4).service(10_000) == 0


def test_speculation_may_be_slower_than_plain_decoding_in_a_large_batch():
    cost = CostModel(step_s=0.03, step_s_per_request=0.002, plain_step_s=0.02, plain_step_s_per_request=0.0002)
    assert cost.tau(1) / 2.5 < cost.plain_tau(1)
    assert cost.tau(64) / 2.5 > cost.plain_tau(64)


def test_it_is_written_and_read_as_json_numbers():
    cost = CostModel(step_s=0.02, prefill_s=0.01, plain_step_s=0.01)
    assert CostModel.from_dict(cost.to_dict()) == cost


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"step": 1}, "unknown key"),
        ({"step_s": "1"}, "number"),
        ({"step_s": True}, "number"),
        ({"step_s": -1}, "from 0"),
        ({"step_s": 1e308}, "from 0"),
        ({"step_s": 10**400}, "from 0"),
        ({"step_s": None}, "number"),
        ({"free_requests": None}, "number"),
        ({"prefill_s": None}, "number"),
        ({"free_requests": 1.5}, "whole number"),
        ({"step_s": 1e-320}, "take at least"),
        ({"step_s": 0, "step_s_per_request": 1, "free_requests": 4}, "take at least"),
        ({"plain_step_s": 0}, "take at least"),
        ([1], "object of numbers"),
    ],
)
def test_what_is_no_cost_model_is_refused_by_name(values, word):
    with pytest.raises(ValueError, match=word):
        CostModel.from_dict(values)


def test_a_step_that_takes_no_time_is_refused():
    with pytest.raises(ValueError, match="take at least"):
        CostModel(step_s=0)
