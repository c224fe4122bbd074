"""Ratios of two policies: what the interval covers, and what is left out."""

from math import nan

import numpy as np
import pytest

from laps_sd.serving.bench.intervals import paired_ratios


def test_a_policy_against_itself_is_one_and_nothing_beside() -> None:
    values = list(np.random.default_rng(0).exponential(3, 100))
    ratios = paired_ratios([values], [values])
    assert ratios is not None
    assert all((r.ratio, r.low, r.high) == (1.0, 1.0, 1.0) for r in ratios.values())


def test_pairing_makes_a_common_factor_certain() -> None:
    values = np.random.default_rng(0).exponential(3, 100)
    ratios = paired_ratios([list(0.8 * values)], [list(values)])
    assert ratios is not None
    assert ratios["mean"].width == pytest.approx(0, abs=1e-9)
    assert ratios["p99"].ratio == pytest.approx(0.8)


@pytest.mark.parametrize("correlated", [False, True])
def test_the_interval_covers_the_true_ratio_about_as_often_as_it_says(correlated: bool) -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for seed in range(60):
        noise = rng.normal(0, 1, (2, 256))
        if correlated:  # as in a queue: each inherits half of the one before
            for i in range(1, 256):
                noise[:, i] = 0.5 * noise[:, i - 1] + noise[:, i]
        ours, theirs = 0.7 * (20 + noise[0]), 20 + noise[1]
        found = paired_ratios([list(ours)], [list(theirs)], seed)
        assert found is not None
        covered += found["mean"].low <= 0.7 <= found["mean"].high
    assert covered >= 48, "95 % of 60 are 57"


def test_more_rounds_make_it_narrower() -> None:
    rng = np.random.default_rng(2)
    ours, theirs = rng.exponential(2, (8, 60)), rng.exponential(3, (8, 60))
    few, many = paired_ratios(list(map(list, ours[:1])), list(map(list, theirs[:1]))), paired_ratios(
        list(map(list, ours)), list(map(list, theirs))
    )  # fmt: skip
    assert few is not None
    assert many is not None
    assert many["mean"].width < few["mean"].width / 2


def test_who_failed_under_one_policy_counts_under_neither() -> None:
    ratios = paired_ratios([[1.0, nan, 3.0]], [[2.0, 100.0, 6.0]])
    assert ratios is not None
    assert ratios["mean"].ratio == 0.5
    assert paired_ratios([[nan]], [[1.0]]) is None
    assert paired_ratios([], []) is None
