"""Step and prefill times, learned while serving."""

import pytest

from laps_sd.scheduler import CostModel
from laps_sd.serving.requests.step_clock import ASSUMED, StepClock


def serve(clock: StepClock, steps: int, step_s: float = 0.02, prompts: tuple[int, ...] = (100, 1000, 1)) -> float:
    """A prefill, of 0.01 s and 0.001 s a token, before every fourth step."""
    now = 0.0
    for i in range(steps):
        if i % 4 == 0:
            tokens = prompts[i // 4 % len(prompts)]
            now += 0.01 + 0.001 * tokens
            clock.on_prefill(now, tokens, after_idle=i == 0)
        now += step_s
        clock.on_decode(now, 4, after_idle=False)
    return now


def test_the_median_step_and_the_line_of_prefill_are_what_was_seen() -> None:
    clock = StepClock()
    serve(clock, 100)
    cost = clock.cost()
    assert cost.step_s == pytest.approx(0.02)
    assert cost.prefill_s == pytest.approx(0.01, rel=0.05)
    assert cost.prefill_s_per_token == pytest.approx(0.001, rel=0.01)


def test_prefills_of_one_size_say_nothing_about_tokens() -> None:
    clock = StepClock()
    serve(clock, 100, prompts=(100,))
    cost = clock.cost()
    assert (cost.prefill_s, cost.prefill_s_per_token) == (pytest.approx(0.11), 0.0)


def test_a_known_cost_is_what_it_says_and_batches_are_still_counted() -> None:
    known = CostModel(step_s=0.5, prefill_s=0.25)
    clock = StepClock(known)
    found = [clock.on_decode(float(i), 1 + i % 7, after_idle=False) for i in range(128)]
    # From the first step on, whenever more run together than were told, and every 64 steps.
    assert [f for f in found if f is not None] == [(known, n) for n in (1, 2, 3, 4, 5, 6, 7, 7)]


def test_nothing_is_claimed_from_little() -> None:
    clock = StepClock()
    serve(clock, 20)
    assert clock.cost() == ASSUMED
    assert clock.measured() is None
    assert ASSUMED.prefill_s == ASSUMED.tau(16) == ASSUMED.tau(1), "a prefill is taken for a step"


def test_a_display_is_told_what_was_measured_even_where_an_order_must_not_use_it() -> None:
    clock = StepClock(ASSUMED)
    serve(clock, 100)
    assert clock.cost() == ASSUMED
    measured = clock.measured()
    assert measured is not None
    assert measured.step_s == pytest.approx(0.02)
    known = CostModel(step_s=0.5, prefill_s=0.25)
    assert StepClock(known).measured() == known


def test_short_prefills_say_nothing_about_tokens() -> None:
    clock = StepClock()
    serve(clock, 200, prompts=(1, 20, 40))
    assert clock.cost().prefill_s_per_token == 0.0


def test_pauses_do_not_count() -> None:
    clock = StepClock()
    now = serve(clock, 100)
    for _ in range(20):
        now += 60.0
        clock.on_decode(now, 4, after_idle=True)
    cost = clock.cost()
    assert cost.step_s == pytest.approx(0.02)


def test_a_new_cost_is_offered_now_and_then() -> None:
    clock = StepClock()
    offered = 0
    now = 0.0
    for i in range(256):
        clock.on_prefill(now, 50, after_idle=False)
        now += 0.02
        offered += clock.on_decode(now, 4, after_idle=False) is not None
        now += 0.01 * (i % 2)
    assert offered == 1 + 3, "four run from the first step on; then every 64 steps"
