"""What a predicted acceptance is worth, from what finished requests taught."""

import random
from math import exp

import pytest

from laps_sd.scheduler import Settings
from laps_sd.scheduler.policies.trust import AcceptanceWorth


def taught(slope: float, count: int = 2000, *, seed: int = 0, **changes: bool) -> AcceptanceWorth:
    """Of requests whose steps are their length over the predicted accept length to the power of ``slope``."""
    worth, rng = AcceptanceWorth(Settings(**changes)), random.Random(seed)
    for _ in range(count):
        length, accept = exp(rng.gauss(5, 0.7)), exp(rng.gauss(0.8, 0.3))
        worth.observe(length, accept, length / accept**slope * exp(rng.gauss(0, 0.1)))
        worth.review()
    return worth


@pytest.mark.parametrize("slope", [0.0, 0.5, 1.0])
def test_it_is_the_slope_of_the_steps_on_the_predicted_accept_length(slope: float) -> None:
    assert taught(slope).value == pytest.approx(slope, abs=0.2)


@pytest.mark.parametrize(("slope", "bound"), [(-2.0, 0.0), (3.0, 1.0)])
def test_it_never_leaves_zero_to_one(slope: float, bound: float) -> None:
    assert taught(slope).value == pytest.approx(bound, abs=0.15)


def test_before_anything_is_known_predictions_are_taken_at_their_word_and_then_halved() -> None:
    assert AcceptanceWorth(Settings()).value == 1
    assert taught(1.0, 1).value == 0.5


def test_it_changes_seldom() -> None:
    worth, rng, changes = AcceptanceWorth(Settings()), random.Random(1), 0
    for _ in range(5000):
        before = worth.value
        worth.observe(exp(rng.gauss(5, 0.7)), exp(rng.gauss(0.8, 0.3)), exp(rng.gauss(4, 0.7)))
        worth.review()
        changes += worth.value != before
    assert changes < 12, "no more than the evidence doubles, up to the memory"


def test_it_can_be_turned_off() -> None:
    assert taught(0.0, weigh_acceptance=False).value == 1


def test_long_requests_decide() -> None:
    """Short answers bear out the prediction, long ones do not: a wrong order of the long ones costs more."""
    worth, rng = AcceptanceWorth(Settings()), random.Random(2)
    for i in range(2000):
        length, accept = 2000.0 if i % 4 == 0 else 50.0, exp(rng.gauss(0.8, 0.3))
        worth.observe(length, accept, length / (1 if i % 4 == 0 else accept))
    worth.review()
    assert worth.value < 0.3
