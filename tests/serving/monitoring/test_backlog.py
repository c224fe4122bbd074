"""What is left by prediction, of all requests of a server."""

from typing import Any

import pytest

from laps_sd.scheduler import CostModel, make_policy, new_request
from laps_sd.serving.monitoring.backlog import Backlog, backlog_of


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
