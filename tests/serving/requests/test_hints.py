"""Clients may say what they expect; nothing they say can hurt."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps_sd.scheduler import Settings
from laps_sd.serving.config import HintsConfig
from laps_sd.serving.requests.hints import NO_HINTS, Hints, apply_hints, read_hints

CONFIG = HintsConfig(max_output_tokens=1000, priority=True, max_priority=5)


def read(said: Any) -> Hints:
    return read_hints({"laps_sd": said}, CONFIG)


def reason_of(value: Any) -> str:
    """Numbers that a client may mean are out of bounds; everything else is not understood."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
    return "out of bounds" if number and value != 1.5 else "not understood"


def test_several_hints_are_rejected_each_for_its_reason() -> None:
    assert read({"expected_output_tokens": 0, "priority": "high", "x": 1}).rejected == (
        "unknown", "out of bounds", "not understood",
    )  # fmt: skip
    assert read(["no object"]).rejected == ("not understood",)


def test_a_believable_hint_is_read() -> None:
    assert read({"expected_output_tokens": 200, "priority": -3}) == Hints(200.0, -3)


@pytest.mark.parametrize("params", [None, {}, {"thinking_budget": 5}, "text", 7])
def test_whoever_says_nothing_has_no_hints(params: object) -> None:
    assert read_hints(params, CONFIG) is NO_HINTS


@pytest.mark.parametrize("tokens", [0, -1, 1001, float("nan"), float("inf"), True, "200", None.__class__, [200]])
def test_a_length_out_of_bounds_is_ignored_and_counted(tokens: object) -> None:
    assert read({"expected_output_tokens": tokens}) == Hints(rejected=(reason_of(tokens),))


@pytest.mark.parametrize("priority", [6, -6, 1.5, "1", True, 2**70, float("nan")])
def test_a_priority_out_of_bounds_is_ignored_and_counted(priority: object) -> None:
    assert read({"priority": priority}) == Hints(rejected=(reason_of(priority),))


def test_an_unknown_hint_is_counted() -> None:
    assert read({"deadline": 3, "priority": 1}) == Hints(priority=1, rejected=("unknown",))


def test_hints_can_be_turned_off() -> None:
    assert read_hints({"laps_sd": {"priority": 1}}, HintsConfig(enabled=False, priority=True)) is NO_HINTS


def test_a_priority_counts_only_where_the_operator_lets_clients_say_one() -> None:
    said = {"laps_sd": {"expected_output_tokens": 9, "priority": 1}}
    assert read_hints(said, HintsConfig()) == Hints(9.0, rejected=("not allowed",))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(JSON, st.dictionaries(st.sampled_from(["expected_output_tokens", "priority", "x"]), JSON))
def test_no_input_raises_and_what_is_read_is_in_bounds(anything: Any, section: Any) -> None:
    for said in (anything, section):
        hints = read(said)
        assert hints.expected_output_tokens is None or 1 <= hints.expected_output_tokens <= 1000
        assert abs(hints.priority) <= 5


def test_a_client_that_expects_a_length_is_believed_about_that_length() -> None:
    said = apply_hints(None, Hints(expected_output_tokens=120), 0.5, Settings())
    assert said is not None
    assert said.length.quantile(0.5) == pytest.approx(120, rel=0.1)


def test_a_hint_about_length_leaves_predicted_acceptance_alone(prediction: Any) -> None:
    predicted = prediction(500, accept_length=3.5)
    said = apply_hints(predicted, Hints(expected_output_tokens=20), 0.5, Settings())
    assert said is not None
    assert (said.accept_length, said.accept_strength) == (3.5, 16.0)
    assert said.length.mean() < 40
    assert apply_hints(predicted, NO_HINTS, 0.5, Settings()) is predicted


def test_a_client_may_say_that_it_is_in_no_hurry() -> None:
    assert read({"batch": True}) == Hints(batch=True)
    assert read({"batch": False}) == Hints()
    assert read({"batch": "yes"}) == Hints(rejected=("not understood",))
