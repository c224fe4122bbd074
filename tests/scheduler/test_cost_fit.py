"""A cost model fitted from timings: it finds the machine that made them."""

from dataclasses import replace

import numpy as np
import pytest

from laps_sd.scheduler.cost_fit import Timing, fit_cost_model, slower_from
from laps_sd.scheduler.service import CostModel


def machine(n: int, batch: int, *, step: float, per_request: float, seed: int = 0) -> list[Timing]:
    """Requests of a machine that always decodes ``batch`` of them together, and prefills beside them."""
    rng = np.random.default_rng(seed)
    timings, clock = [], [0.0] * batch
    for i in range(n):
        slot = i % batch
        steps, prompt = int(rng.integers(20, 200)), int(rng.integers(10, 2000))
        prefill = 0.01 + 1e-5 * prompt
        decode = steps * (step + per_request * batch) * float(rng.uniform(0.99, 1.01))
        # Queued since an earlier moment: the wait must not count as prefill.
        timings.append(Timing(prompt, steps, 0.5 + prefill, 0.5 + prefill + decode, 0.5, clock[slot] - 0.5))
        clock[slot] += prefill + decode
    return timings


def test_prefill_line_is_found() -> None:
    fit = fit_cost_model(machine(100, 1, step=0.02, per_request=0.0))
    assert fit.model.prefill(1000) == pytest.approx(0.02, rel=0.01)
    assert fit.model.prefill(1) == pytest.approx(0.01001, rel=0.01)
    assert fit.prefill_error < 0.01


def test_step_time_grows_with_the_batch_as_measured() -> None:
    timings = []
    for offset, batch in enumerate((1, 4, 16)):
        for t in machine(160, batch, step=0.02, per_request=0.002, seed=batch):
            assert t.arrival_s is not None
            timings.append(replace(t, arrival_s=t.arrival_s + 1e5 * offset))
    fit = fit_cost_model(timings)
    assert fit.batch_max > 10
    for batch in (1, 4, 16):
        assert fit.model.tau(batch) == pytest.approx(0.02 + 0.002 * batch, rel=0.08)


def test_one_operating_point_gives_a_constant_step() -> None:
    fit = fit_cost_model(machine(50, 1, step=0.03, per_request=0.0))
    assert fit.model.step_s_per_request == 0.0
    assert fit.model.tau(1) == pytest.approx(0.03, rel=0.02)


def test_without_arrivals_each_request_counts_as_alone() -> None:
    timings = [Timing(100, 50, 0.1, 1.1) for _ in range(5)]
    fit = fit_cost_model(timings)
    assert (fit.batch_mean, fit.model.tau(1)) == (1.0, pytest.approx(0.02))


def test_a_hiccup_does_not_bend_the_line() -> None:
    timings = machine(60, 1, step=0.02, per_request=0.0)
    timings[7] = replace(timings[7], e2e_s=timings[7].e2e_s + 60)
    assert fit_cost_model(timings).model.tau(1) == pytest.approx(0.02, rel=0.02)


def test_too_few_timings_are_refused_with_what_is_needed() -> None:
    with pytest.raises(ValueError, match="needs 3 requests with verify_steps, ttft_s and e2e_s"):
        fit_cost_model([Timing(10, 0, 0.1, 0.2)] * 9)


def test_plain_decoding_is_fitted_beside_speculation() -> None:
    timings = machine(50, 1, step=0.03, per_request=0.0)
    plain = [Timing(100, 200, 0.02, 0.02 + 200 * 0.012) for _ in range(5)]
    fit = fit_cost_model(timings, plain)
    assert fit.model.plain_tau(1) == pytest.approx(0.012)
    assert fit_cost_model(timings).model.plain_tau(1) is None


def test_speculation_pays_until_its_step_costs_more_than_the_tokens_it_saves() -> None:
    cost = CostModel(step_s=0.02, step_s_per_request=0.002, plain_step_s=0.02, plain_step_s_per_request=0.0005)
    # 0.02 + 0.002 b > 2 (0.02 + 0.0005 b) from b > 20 on.
    assert slower_from(cost, 2.0, 64) == 21
    assert slower_from(cost, 2.0, 20) is None
    assert slower_from(CostModel.unit(), 2.0, 64) is None


def test_a_step_under_the_knee_takes_time_whatever_was_measured() -> None:
    together = (6, 12, 20, 40)  # and each request beyond four adds 2 ms: the line goes through the knee
    groups = [[Timing(10, 100, 0.0, 0.2 * (batch - 4), 0.0, 1e3 * batch)] * batch for batch in together]
    timings = [t for group in groups for t in group]
    fit = fit_cost_model(timings, plain=timings)
    assert fit.model.tau(1) > 0
    assert fit.model.plain_tau(1) is None or fit.model.plain_tau(1) > 0
