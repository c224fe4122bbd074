"""A cost model fitted to rounds: what it finds again, and what its error bars cover."""

import numpy as np
import pytest

from laps_sd.scheduler.round_fit import fit_rounds


def rounds(rng: np.random.Generator, base: float, slope: float, sizes: np.ndarray) -> list[tuple[int, float]]:
    noise = rng.lognormal(0, 0.2, len(sizes)) / np.exp(0.02)  # skewed, and of mean 1, as the times of rounds are
    return [(int(x), float((base + slope * x) * e)) for x, e in zip(sizes, noise, strict=True)]


def test_the_lines_are_found_again_and_inside_their_error_bars() -> None:
    inside = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        steps = rounds(rng, 0.1, 0.02, rng.integers(1, 9, 800))
        prefills = rounds(rng, 0.2, 0.003, rng.integers(20, 300, 200))
        fitted = fit_rounds(steps, prefills, seed)
        assert fitted.model.tau(4) == pytest.approx(0.18, rel=0.05)
        assert fitted.model.prefill(100) == pytest.approx(0.5, rel=0.08)
        assert (fitted.steps, fitted.prefills) == (800, 200)
        inside += fitted.step_s.low <= 0.1 <= fitted.step_s.high
    assert inside >= 15, "95 % of 20 are 19"


def test_the_sum_of_all_steps_is_kept_although_times_are_skewed() -> None:
    rng = np.random.default_rng(0)
    times = rng.exponential(1.0, 5000)
    fitted = fit_rounds([(4, float(t)) for t in times], [(10, 1.0)] * 20)
    assert fitted.model.tau(4) == pytest.approx(times.mean(), rel=0.02)


def test_one_pause_of_the_machine_is_no_cost_of_a_step() -> None:
    steps = [(1 + i % 4, 0.1) for i in range(999)] + [(4, 60.0)]
    assert fit_rounds(steps, [(10, 1.0)] * 20).model.tau(4) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("steps", "base", "slope"),
    [([(1 + i % 4, 1.0 - 0.1 * (i % 4)) for i in range(40)], 0.85, 0.0), ([(2, 0.5)] * 40, 0.5, 0.0)],
)
def test_nothing_costs_less_than_nothing(steps: list[tuple[int, float]], base: float, slope: float) -> None:
    model = fit_rounds(steps, [(10, 1.0)] * 20).model
    assert (model.step_s, model.step_s_per_request) == (pytest.approx(base), pytest.approx(slope))


def test_too_few_rounds_are_told() -> None:
    with pytest.raises(ValueError, match="8 decode steps and 8 prefills; there are 1 and 2"):
        fit_rounds([(1, 1.0)], [(1, 1.0)] * 2)
