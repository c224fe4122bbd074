"""A prediction travels with its request as JSON and comes back the same, and nothing else is let in."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps_sd.scheduler import Prediction, SurvivalCurve

CURVE = SurvivalCurve([0, 10, 100], [1, 0.5, 0.1])


@given(st.floats(1, 20), st.floats(0.1, 100), st.floats(5, 2000), st.floats(0.1, 1.2))
def test_the_wire_carries_all_of_it(accept_length, strength, median, sigma):
    sent = Prediction(SurvivalCurve.lognormal(median, sigma), accept_length, strength)
    received = Prediction.from_wire(json.loads(json.dumps(sent.to_wire())))
    assert received.accept_length == sent.accept_length
    assert received.accept_strength == sent.accept_strength
    assert received.length.mean() == pytest.approx(sent.length.mean(), rel=1e-3)


def test_expected_steps_are_tokens_over_the_accept_length():
    assert Prediction(CURVE, 2.0, 8.0).steps == pytest.approx(CURVE.mean() / 2)


@pytest.mark.parametrize(
    "change",
    [
        {"edges": None},
        {"edges": "0,10"},
        {"edges": [0, "10"]},
        {"edges": [0, 10]},
        {"survival": [1, 2, 3]},
        {"survival": [True, 0.5, 0.1]},
        {"accept_length": 0.5},
        {"accept_length": float("nan")},
        {"accept_length": "2"},
        {"accept_length": 10**400},  # benchmarks/fuzz.py, seed 1796252990 and others
        {"survival": [1, 10**400, 0]},
        {"accept_strength": 0},
        {"accept_strength": float("inf")},
    ],
)
def test_whatever_else_arrives_is_refused(change):
    with pytest.raises(ValueError, match=r".+"):
        Prediction.from_wire({**Prediction(CURVE, 2.0, 8.0).to_wire(), **change})


@pytest.mark.parametrize("wire", [{}, {"edges": [0, 1]}, None, 7])
def test_a_prediction_with_missing_parts_is_refused(wire):
    with pytest.raises(ValueError, match="needs edges"):
        Prediction.from_wire(wire)
