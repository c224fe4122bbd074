"""Predictions of a stated quality, and corrupted ones."""

from collections import Counter

import numpy as np
import pytest

from laps_sd.scheduler.prediction import Prediction
from laps_sd.scheduler.simulator.predictions import (
    noisy_predictions,
    reversed_order,
    shuffled,
    unseeded_acceptance,
    unseeded_length,
)
from laps_sd.scheduler.simulator.workload import ReplayRequest
from laps_sd.scheduler.survival import SurvivalCurve


def requests(n: int = 2000) -> list[ReplayRequest]:
    rng = np.random.default_rng(0)
    lengths = np.exp(rng.normal(5, 1, n)).astype(int) + 4
    return [ReplayRequest(str(i), 0.0, 10, int(k) // 2 * 2, (2,) * (int(k) // 2)) for i, k in enumerate(lengths)]


def predictions(n: int = 6) -> list[Prediction]:
    return [Prediction(SurvivalCurve.lognormal(100 * (i + 1), 0.5), 1.0 + i, 4.0 + i) for i in range(n)]


@pytest.mark.parametrize("sigma", [0.3, 0.9])
def test_noise_is_the_standard_deviation_of_the_log_and_the_curve_knows_it(sigma: float) -> None:
    trace = requests()
    noisy = noisy_predictions(trace, sigma, np.random.default_rng(1))
    error = [np.log(p.length.quantile(0.5) / r.output_tokens) for p, r in zip(noisy, trace, strict=True)]
    assert np.mean(error) == pytest.approx(0, abs=0.06)
    assert np.std(error) == pytest.approx(sigma, rel=0.06)
    covered = np.mean(
        [p.length.quantile(0.1) <= r.output_tokens <= p.length.quantile(0.9) for p, r in zip(noisy, trace, strict=True)]
    )
    assert covered == pytest.approx(0.8, abs=0.04)


def test_no_noise_is_clairvoyant_about_the_length_and_knows_nothing_of_a_requests_acceptance() -> None:
    trace = requests(50)
    exact = noisy_predictions(trace, 0.0, np.random.default_rng(1))
    np.testing.assert_allclose([p.length.mean() for p in exact], [r.output_tokens for r in trace], rtol=0.03)
    assert {p.accept_length for p in exact} == {2.0}


def test_shuffling_moves_predictions_and_loses_none() -> None:
    given = predictions(50)
    moved = shuffled(given, np.random.default_rng(0))
    assert Counter(map(id, moved)) == Counter(map(id, given))
    assert moved != given


def test_reversing_gives_the_longest_to_the_shortest() -> None:
    given = predictions()
    assert reversed_order(given) == given[::-1]
    assert reversed_order(reversed_order(given)) == given


def test_ablations_replace_one_half_of_a_prediction_by_what_is_common() -> None:
    given = predictions()
    lengths = unseeded_acceptance(given)
    assert [p.length for p in lengths] == [p.length for p in given]
    assert {p.accept_length for p in lengths} == {3.5}
    acceptances = unseeded_length(given)
    assert [p.accept_length for p in acceptances] == [p.accept_length for p in given]
    assert len({p.length for p in acceptances}) == 1
    assert acceptances[0].length.mean() == pytest.approx(np.mean([p.length.mean() for p in given]), rel=0.1)
