"""Calibrated curves cover what they claim, with cut requests among them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps_sd.predictors.length.buckets import log_edges, quantiles
from laps_sd.predictors.length.calibration import Calibration, survival_at


def overconfident(n: int, seed: int, cut_above: float = np.inf):
    """Lengths with twice the spread of their predicted curves."""
    random = np.random.default_rng(seed)
    center = random.normal(5.0, 0.5, n)
    lengths = np.maximum(1.0, np.rint(np.exp(center + 0.8 * random.standard_normal(n))))
    edges = log_edges(lengths)
    z = (np.log(np.maximum(edges, 0.5)) - center[:, None]) / 0.4
    survival = 1.0 / (1.0 + np.exp(1.7 * z))
    survival[:, 0] = 1.0
    cut = lengths > cut_above
    return np.minimum(lengths, cut_above), cut, survival, edges


def coverage(lengths, survival, edges):
    low, high = quantiles(survival, edges, 0.1), quantiles(survival, edges, 0.9)
    return float(np.mean((low <= lengths) & (lengths <= high)))


def test_overconfident_curves_are_widened_until_they_cover_what_they_claim():
    lengths, cut, survival, edges = overconfident(2000, 0)
    calibration = Calibration.fit(lengths, cut, survival, edges)
    fresh, _, curves, grid = overconfident(2000, 1)
    assert coverage(fresh, curves, grid) < 0.6
    assert 0.76 <= coverage(fresh, calibration.apply(curves), grid) <= 0.84


def test_cut_requests_do_not_spoil_it():
    lengths, cut, survival, edges = overconfident(3000, 2, cut_above=300.0)
    assert 0.15 < cut.mean() < 0.4
    calibration = Calibration.fit(lengths, cut, survival, edges)
    fresh, _, curves, grid = overconfident(2000, 3)
    assert 0.74 <= coverage(fresh, calibration.apply(curves), grid) <= 0.86


def test_a_handful_of_requests_moves_it_little():
    lengths, cut, survival, edges = overconfident(5, 4)
    calibration = Calibration.fit(lengths, cut, survival, edges)
    assert np.abs(calibration.observed - calibration.predicted).max() < 0.35


@given(st.integers(1, 50), st.integers(0, 1000))
def test_it_maps_survival_curves_to_survival_curves(n, seed):
    lengths, cut, survival, edges = overconfident(n, seed, cut_above=200.0)
    mapped = Calibration.fit(lengths, cut, survival, edges).apply(survival)
    assert mapped[:, 0] == pytest.approx(1.0)
    assert (np.diff(mapped, axis=1) <= 1e-12).all()
    assert (mapped >= 0).all()


def test_the_identity_changes_nothing():
    curve = np.array([[1.0, 0.6, 0.1]])
    assert np.array_equal(Calibration.identity().apply(curve), curve)


def test_survival_between_edges_is_linear():
    assert survival_at(np.array([15.0]), np.array([[1.0, 0.8, 0.4]]), np.array([0, 10, 20])) == pytest.approx(0.6)
