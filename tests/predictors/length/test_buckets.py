"""Buckets, censored counts and Kaplan-Meier curves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps_sd.predictors.length.buckets import bucket_of, exposure, log_edges, pooled_hazard, quantiles, survival_of
from laps_sd.scheduler import SurvivalCurve

LENGTHS = st.lists(st.integers(0, 50_000), min_size=1, max_size=60)


@given(LENGTHS, st.integers(1, 60))
def test_edges_start_at_zero_increase_and_travel_with_a_request(lengths, buckets):
    edges = log_edges(np.array(lengths), buckets)
    assert edges[0] == 0
    assert (np.diff(edges) > 0).all()
    assert 2 <= len(edges) <= 40


@given(LENGTHS)
def test_every_length_lies_in_its_bucket(lengths):
    values = np.maximum(lengths, 1)
    edges = log_edges(values)
    bucket = bucket_of(values, edges)
    assert (edges[bucket] < values).all()
    assert (values <= edges[bucket + 1]).all()


def test_a_request_that_ended_has_one_event_and_one_that_was_cut_has_none():
    edges = np.array([0, 10, 20, 40])
    events, at_risk = exposure(np.array([15.0, 15.0]), np.array([False, True]), edges)
    assert events.tolist() == [[0, 1, 0], [0, 0, 0]]
    assert at_risk.tolist() == [[1, 1, 0], [1, 0.5, 0]]


@given(LENGTHS, st.data())
def test_survival_is_a_survival_curve(lengths, data):
    values = np.maximum(np.array(lengths, dtype=float), 1.0)
    cut = np.array(data.draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths))))
    edges = log_edges(values)
    survival = survival_of(pooled_hazard(values, cut, edges))
    SurvivalCurve(edges, survival)  # checks itself
    assert 0 < survival[-1] < 1


@given(st.floats(0.05, 0.9))
def test_vector_quantiles_agree_with_the_curve_s_own(q):
    edges = np.array([0, 10, 30, 100])
    survival = np.array([[1.0, 0.8, 0.4, 0.05], [1.0, 0.99, 0.98, 0.02]])
    expected = [SurvivalCurve(edges, row).quantile(q) for row in survival]
    assert quantiles(survival, edges, q) == pytest.approx(expected, rel=1e-6)
