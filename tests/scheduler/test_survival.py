"""The survival curve answers every question about a length as a brute-force sum over tokens would."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps_sd.scheduler import SurvivalCurve
from laps_sd.scheduler.survival import MAX_EDGES


@st.composite
def curves(draw):
    """Curves over a few hundred tokens whose tail is short enough to be summed by hand."""
    widths = draw(st.lists(st.integers(1, 60), min_size=2, max_size=8))
    hazards = draw(st.lists(st.floats(0.05, 0.9), min_size=len(widths), max_size=len(widths)))
    return SurvivalCurve(np.cumsum([0, *widths]), np.cumprod([1, *(1 - h for h in hazards)]))


@given(st.lists(curves(), min_size=1, max_size=4))
def test_curves_made_together_are_those_made_one_by_one(several):
    edges = np.arange(5) * 20
    survival = np.array([[curve.survive(t) for t in edges] for curve in several])
    assert SurvivalCurve.batch(edges, survival) == [SurvivalCurve(edges, row) for row in survival]
    assert [c.mean(7) for c in SurvivalCurve.batch(edges, survival)] == [
        SurvivalCurve(edges, row).mean(7) for row in survival
    ]


def test_curves_made_together_are_refused_with_one_that_is_no_number():
    edges = np.array([0, 10, 20])
    with pytest.raises(ValueError, match="numbers"):
        SurvivalCurve.batch(edges, np.array([[1.0, 0.5, 0.2], [1.0, np.nan, 0.2]]))
    with pytest.raises(ValueError, match="as many values"):
        SurvivalCurve.batch(edges, np.array([[1.0, 0.5]]))
    with pytest.raises(ValueError, match="increasing"):
        SurvivalCurve.batch(np.array([0, 10, 10]), np.array([[1.0, 0.5, 0.2]]))


def table(curve):
    """S(0), S(1), … one by one."""
    return np.array([curve.survive(t) for t in range(1000)])


@given(curves(), st.integers(0, 200))
def test_mean_is_the_sum_of_the_conditional_survival(curve, g):
    s = table(curve)
    tail = curve.mean(len(s) - 1) * s[-1]
    assert curve.mean(g) == pytest.approx(max(1.0, (s[g:-1].sum() + tail) / s[g]), rel=1e-6)


@given(curves(), st.integers(0, 200), st.integers(1, 400))
def test_mean_under_a_limit_stops_at_the_limit(curve, g, more):
    s = table(curve)
    assert curve.mean(g, g + more) == pytest.approx(max(1.0, s[g : g + more].sum() / s[g]), rel=1e-6)


@given(curves(), st.integers(0, 200), st.floats(0.01, 0.98))
def test_quantile_is_where_that_share_has_ended(curve, g, q):
    rest = curve.quantile(q, g)
    assert 1 - curve.survive(g + rest) / curve.survive(g) == pytest.approx(q, abs=1e-6)


@given(curves(), st.integers(0, 200))
def test_gittins_is_the_best_rate_over_all_horizons(curve, g):
    s = table(curve)[g:]
    spent = np.cumsum(s[:-1] / s[0])
    ends = 1 - s[1:] / s[0]
    best = min(np.min(spent[ends > 1e-9] / ends[ends > 1e-9]), curve.mean(g))  # the mean: a horizon without end
    # The table keeps the best horizon of each edge, not of each token: equal at edges, close between them.
    assert max(best, 1.0) * 0.999 <= curve.gittins(g) <= max(best, 1.0) * 1.1
    if g in curve.edges:
        assert curve.gittins(g) == pytest.approx(max(best, 1.0), rel=1e-3)


@given(curves(), st.integers(0, 2000), st.integers(0, 2000))
def test_survival_never_rises(curve, a, b):
    low, high = sorted((a, b))
    assert 0 < curve.survive(high) <= curve.survive(low) <= 1


@given(curves(), st.integers(0, 5000))
def test_whoever_still_runs_needs_at_least_one_more_token(curve, g):
    assert curve.mean(g) >= 1
    assert curve.gittins(g) >= 1
    assert curve.gittins(g) <= curve.mean(g) + 1e-9


def test_a_memoryless_length_always_needs_the_same():
    curve = SurvivalCurve.exponential(100)
    assert curve.mean(0) == pytest.approx(100, rel=0.05)
    assert curve.mean(500) == pytest.approx(curve.mean(0), rel=0.1)


def test_a_heavy_tail_needs_more_the_longer_it_has_run():
    curve = SurvivalCurve([0, 10, 100, 1000], [1, 0.3, 0.1, 0.03])
    assert curve.mean(0) < curve.mean(10) < curve.mean(100)
    assert curve.gittins(0) < curve.gittins(10)


@given(st.floats(2, 5000), st.floats(0.05, 1.5))
def test_a_lognormal_curve_has_its_median(median, sigma):
    curve = SurvivalCurve.lognormal(median, sigma)
    assert len(curve.edges) <= MAX_EDGES
    assert curve.quantile(0.5) == pytest.approx(median, rel=0.1, abs=1)


def test_a_request_that_outlived_its_curve_is_expected_to_go_on_no_longer_than_the_curve_was():
    curve = SurvivalCurve([0, 50, 100], [1, 0.5, 0.0])
    assert 1 <= curve.mean(100) <= 100
    assert 1 <= curve.mean(100_000) <= 100
    flat = SurvivalCurve([0, 100], [1, 1])
    assert flat.mean(0) <= 200


def test_at_the_limit_nothing_remains():
    curve = SurvivalCurve.exponential(100)
    assert curve.mean(64, 64) == 0
    assert curve.gittins(70, 64) == 0


@pytest.mark.parametrize(
    ("edges", "survival"),
    [
        ([0], [1]),
        ([0, 5, 5], [1, 0.5, 0.2]),
        ([1, 5], [1, 0.5]),
        ([0, 5], [0.9, 0.5]),
        ([0, 5, 9], [1, 0.5, 0.6]),
        ([0, 5], [1, -0.1]),
        ([0, 5], [1, float("nan")]),
        ([0, 5.5], [1, 0.5]),
        ([0, 2**40], [1, 0.5]),
        ([[0, 5]], [[1, 0.5]]),
        (list(range(MAX_EDGES + 1)), [1.0] * (MAX_EDGES + 1)),
        ([0, 5, 9], [1, 0.5]),
    ],
)
def test_what_is_not_a_curve_is_refused(edges, survival):
    with pytest.raises(ValueError, match=r"survival|edges"):
        SurvivalCurve(edges, survival)


def test_curves_are_values():
    one, same = SurvivalCurve([0, 10], [1, 0.5]), SurvivalCurve([0, 10], [1, 0.5])
    assert one == same
    assert hash(one) == hash(same)
    assert one != SurvivalCurve([0, 10], [1, 0.4])
    assert one != "a curve"
    one.edges[0] = 7  # a copy: curves do not change
    assert one.edges[0] == 0
    assert "tokens" in repr(one)


def test_bounds_of_the_questions():
    curve = SurvivalCurve([0, 10], [1, 0.5])
    assert curve.survive(-3) == 1
    assert curve.quantile(0) == 0
    with pytest.raises(ValueError, match="quantile"):
        curve.quantile(1.0)
    with pytest.raises(ValueError, match="median"):
        SurvivalCurve.lognormal(0, 1)


@pytest.mark.parametrize("g", [0, 7, 100, 399, 400, 401, 5000])
def test_going_on_is_survival_given_the_tokens_so_far(g):
    curve = SurvivalCurve([0, 10, 100, 400], [1.0, 0.9, 0.4, 0.1])
    times = np.array([g, g + 1, g + 50, g + 500, g + 5000], dtype=float)
    found = curve.going_on(times, g)
    assert found[0] == pytest.approx(1.0)
    for t, value in zip(times, found, strict=True):
        assert value == pytest.approx(curve.survive(t) / curve.survive(g), rel=1e-6, abs=1e-12)


def test_going_on_is_known_where_survival_itself_is_too_small_for_a_float():
    curve = SurvivalCurve([0, 10, 20], [1.0, 0.5, 0.0])
    assert curve.going_on(np.array([1024.0, 1025.0]), 1024)[1] < 0.5
