"""Step and prefill times, learned while serving."""

import pytest

from laps_sd.serving.step_clock import StepClock


def serve(clock: StepClock, steps: int, step_s: float = 0.02, start: float = 0.0) -> float:
    now = start
    for i in range(steps):
        if i % 4 == 0:
            now += 0.1
            clock.on_prefill(now, 100, after_idle=i == 0)
        now += step_s
        clock.on_decode(now, after_idle=False)
    return now


def test_medians_of_what_was_seen() -> None:
    clock = StepClock()
    serve(clock, 100)
    cost = clock.cost()
    assert cost is not None
    assert cost.step_s == pytest.approx(0.02)
    assert cost.prefill_s_per_token == pytest.approx(0.001)
    assert cost.steps_per_prefill_token(4) == pytest.approx(0.05)


def test_nothing_is_claimed_from_little() -> None:
    clock = StepClock()
    serve(clock, 20)
    assert clock.cost() is None


def test_pauses_do_not_count() -> None:
    clock = StepClock()
    now = serve(clock, 100)
    for _ in range(20):
        now += 60.0
        clock.on_decode(now, after_idle=True)
    cost = clock.cost()
    assert cost is not None
    assert cost.step_s == pytest.approx(0.02)


def test_a_new_cost_is_offered_now_and_then() -> None:
    clock = StepClock()
    offered = 0
    now = 0.0
    for i in range(256):
        clock.on_prefill(now, 50, after_idle=False)
        now += 0.02
        offered += clock.on_decode(now, after_idle=False) is not None
        now += 0.01 * (i % 2)
    assert offered == 4
