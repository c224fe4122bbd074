"""Who is due is told in order, and whoever left long before leaves nothing behind."""

import random

from laps_sd.scheduler import RequestState, Settings, make_policy, new_request
from laps_sd.scheduler.policies.deadlines import Deadlines


def test_the_due_come_in_order_and_those_that_left_do_not() -> None:
    rng = random.Random(1)
    waiting: dict[int, RequestState] = {}
    deadlines = Deadlines(waiting)
    due: dict[int, int] = {}
    for now in range(3000):
        state = new_request(now, 1)
        state.deadline = due[now] = now + rng.choice([3, 50, 10**9])
        waiting[now] = state
        deadlines.add(state)
        if rng.random() < 0.8:  # it got a slot long before
            gone = rng.choice(list(waiting))
            del waiting[gone], due[gone]
        told = [s.arrival for s in deadlines.due(now)]
        assert told == sorted((n for n in due if due[n] <= now), key=lambda n: (due[n], n))
        for number in told:
            del waiting[number], due[number]


def test_a_deadline_that_was_moved_counts_once() -> None:
    state = new_request(7, 1)
    deadlines = Deadlines({7: state})
    for state.deadline in (5, 9):
        deadlines.add(state)
    assert list(deadlines.due(8)) == []
    assert list(deadlines.due(9)) == [state]


def test_much_patience_costs_no_memory() -> None:
    policy = make_policy("laps-sd", Settings(patience=1e9))
    for number in range(5000):
        state = new_request(number, 5, settings=policy.settings)
        policy.start_round()
        policy.on_arrival(state)
        policy.rank([state])
        policy.on_admit(state)
        policy.on_finish(state)
    assert len(policy._deadlines) < 100  # type: ignore[attr-defined]
