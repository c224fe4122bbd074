"""What is left by prediction, of all requests of a server."""

from typing import Any

import pytest

from laps_sd.scheduler import CostModel, make_policy, new_request
from laps_sd.serving.monitoring.backlog import Backlog, backlog_of, order_gain


def requests(prediction: Any, n: int) -> list[Any]:
    return [
        new_request(i, 10, prediction=prediction(100, accept_length=2.0), max_new_tokens=1000, max_correct_drafts=3)
        for i in range(n)
    ]


@pytest.mark.parametrize("policy", ["fcfs", "laps-sd"])
def test_it_adds_up_and_a_part_of_many_stands_for_all(prediction: Any, policy: str) -> None:
    ranks = make_policy(policy)
    one = backlog_of(requests(prediction, 1), ranks)
    assert one.tokens == pytest.approx(100, rel=0.1)
    assert one.steps == pytest.approx(50, rel=0.3)
    assert one.prefill_tokens == 10
    for n in (3, 2500):
        assert backlog_of(requests(prediction, n), ranks).tokens == pytest.approx(n * one.tokens)


def test_nothing_known_counts_for_nothing_and_a_known_end_exactly() -> None:
    unknown = new_request(1, 10, max_new_tokens=50)
    exact = new_request(2, 10, max_new_tokens=50, runs_to_limit=True)
    exact.generated = 20
    assert backlog_of([], make_policy("fcfs")) == Backlog(0, 0, 0)
    assert backlog_of([unknown], make_policy("fcfs")).tokens == 0
    assert backlog_of([exact], make_policy("fcfs")).tokens == 30


def test_steps_are_shared_by_those_who_run_together() -> None:
    cost = CostModel(step_s=0.1, prefill_s_per_token=0.01)
    assert Backlog(0, 80, 100).seconds(cost, together=4) == pytest.approx(80 / 4 * 0.1 + 1.0)
    assert Backlog(0, 80, 0).seconds(cost, together=0) == pytest.approx(8)


def test_the_order_gains_what_the_long_one_would_have_held_the_short_ones_up(prediction: Any) -> None:
    policy = make_policy("fcfs")
    states = [
        new_request(i, 10, max_new_tokens=tokens, runs_to_limit=True, max_correct_drafts=0)
        for i, tokens in enumerate((90, 10, 20))
    ]
    for state in states:
        state.key = (0, 0, state.limit_left, state.arrival)  # as shortest first would place it
    # By arrival they wait 0, 90 and 100 steps, the shortest first 0, 10 and 30; two slots share them.
    assert order_gain(states, policy, 1) == pytest.approx((190 - 40) / 3)
    assert order_gain(states, policy, 2) == pytest.approx((190 - 40) / 6)
    assert order_gain([], policy, 2) == 0.0
