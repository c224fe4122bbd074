"""Figures of merit on cases that can be worked out by hand."""

import math

import numpy as np
import pytest
from lifelines.utils import concordance_index

from laps_sd.training.evaluation.metrics import KEYS, bootstrap, c_index, integrated_brier, length_metrics

EDGES = np.array([0, 10, 20, 40, 80, 160])


def sharp(tokens):
    """Curves that fall from 1 to 0 in the bucket of each length."""
    return (EDGES[None, :] < np.asarray(tokens)[:, None]).astype(float)


def test_a_right_prediction_gets_the_best_figures():
    tokens = np.array([8.0, 15.0, 30.0, 70.0, 150.0])
    figures = length_metrics(tokens, np.zeros(5, bool), sharp(tokens), EDGES)
    assert set(figures) == set(KEYS)
    assert figures["kendall_tau"] == pytest.approx(1.0)
    assert figures["c_index"] == 1.0
    assert figures["coverage_80"] == 1.0
    assert figures["mae_tokens"] < 25
    assert figures["integrated_brier"] < 0.25


def test_a_constant_prediction_has_no_order():
    tokens = np.array([8.0, 15.0, 30.0])
    figures = length_metrics(tokens, np.zeros(3, bool), np.tile([1, 0.8, 0.5, 0.2, 0.1, 0.0], (3, 1)), EDGES)
    assert figures["kendall_tau"] is None
    assert figures["c_index"] == 0.5
    assert figures["mae_tokens"] == pytest.approx(np.mean([12, 5, 10]))


def test_what_cannot_be_computed_is_none_and_never_nan():
    for n, cut in ((1, False), (3, True)):
        tokens = np.full(n, 30.0)
        figures = length_metrics(tokens, np.full(n, cut), sharp(tokens), EDGES)
        assert figures["n"] == n
        assert figures["n_ended"] == (0 if cut else n)
        assert all(v is None or math.isfinite(v) for v in figures.values())


def test_concordance_counts_cut_requests_as_lifelines_does():
    random = np.random.default_rng(0)
    tokens = random.integers(1, 40, 120).astype(float)
    predicted, cut = tokens + random.normal(0, 10, 120), random.random(120) < 0.3
    predicted = np.round(predicted, -1)  # ties
    assert c_index(predicted, tokens, cut) == pytest.approx(concordance_index(tokens, predicted, ~cut), abs=0.01)


def test_nothing_comparable_gives_no_concordance():
    assert c_index(np.ones(3), np.ones(3), np.ones(3, bool)) is None


def test_the_brier_score_prefers_the_true_curves_and_survives_cutting():
    random = np.random.default_rng(1)
    center = random.normal(3.4, 0.6, 2000)
    lengths = np.exp(center + 0.3 * random.standard_normal(2000))
    curves = 1 / (1 + np.exp(1.7 * (np.log(np.maximum(EDGES, 0.5)) - center[:, None]) / 0.3))
    pooled = np.tile(curves.mean(axis=0), (2000, 1))
    none, cut = np.zeros(2000, bool), lengths > 60
    whole = integrated_brier(lengths, none, curves, EDGES)
    assert whole < integrated_brier(lengths, none, pooled, EDGES)
    assert integrated_brier(np.minimum(lengths, 60), cut, curves, EDGES) == pytest.approx(whole, abs=0.05)


def test_the_bootstrap_resamples_groups_and_encloses_the_figure():
    random = np.random.default_rng(2)
    tokens = np.exp(random.normal(3, 1, 80)).clip(1, 159)
    survival = sharp(tokens * np.exp(random.normal(0, 0.5, 80)))
    groups = np.repeat(np.arange(20), 4)
    figures = length_metrics(tokens, np.zeros(80, bool), survival, EDGES)
    intervals = bootstrap(groups, tokens, np.zeros(80, bool), survival, EDGES)
    for name, (low, high) in intervals.items():
        assert low <= figures[name] <= high
    assert bootstrap(np.zeros(80, int), tokens, np.zeros(80, bool), survival, EDGES)["kendall_tau"] is None
