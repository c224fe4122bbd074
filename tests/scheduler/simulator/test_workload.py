"""What is replayed: loads mean what they say, and accept lengths always add up."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps_sd.scheduler.service import CostModel
from laps_sd.scheduler.simulator.workload import (
    ReplayRequest,
    at_load,
    gamma_arrivals,
    geometric_accept_lengths,
    histogram_accept_lengths,
    load_of,
    offered_work_s,
    rate_for_load,
    resampled_accept_lengths,
    with_arrivals,
)

UNIT = CostModel.unit()


def request(arrival: float = 0.0, steps: int = 4, prompt: int = 10) -> ReplayRequest:
    return ReplayRequest(f"r{arrival}", arrival, prompt, 2 * steps + 1, (2,) * steps)


def test_a_request_knows_what_its_prefill_emits() -> None:
    assert (request().steps, request().first_tokens, request().accept_length) == (4, 1, 2.0)
    only_prefill = ReplayRequest("one", 0.0, 5, 1, ())
    assert (only_prefill.steps, only_prefill.first_tokens, only_prefill.accept_length) == (0, 1, 1.0)


def test_drafts_are_those_really_proposed() -> None:
    assert request().drafts(2) == 5
    assert replace(request(), draft_lengths=(5, 7, 6, 5)).drafts(1) == 7


@pytest.mark.parametrize(
    "change",
    [{"accept_lengths": (9, 9)}, {"accept_lengths": (0, 1)}, {"draft_lengths": (5,)}, {"output_tokens": 0}],
)
def test_a_request_that_does_not_add_up_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="request r0"):
        replace(request(), **change)  # type: ignore[arg-type]


def test_unit_load_counts_verify_steps_only() -> None:
    # 11 requests of 4 steps, one per second, on 8 slots: 4 steps a second of the 8 that the slots can do.
    requests = [request(float(t)) for t in range(11)]
    assert load_of(requests, UNIT, slots=8) == pytest.approx(0.5)
    assert offered_work_s(requests, UNIT, slots=8) == pytest.approx(11 * 4 / 8)


def test_fitted_load_counts_prefill_and_the_step_time_of_a_full_batch() -> None:
    cost = CostModel(step_s=0.02, step_s_per_request=0.001, prefill_s=0.01, prefill_s_per_token=1e-4)
    assert offered_work_s([request()], cost, slots=10) == pytest.approx(0.01 + 10e-4 + 4 * 0.03 / 10)


@given(load=st.floats(0.1, 3), gaps=st.lists(st.floats(0, 5), min_size=2, max_size=20).filter(lambda g: sum(g) > 0.1))
def test_rescaling_reaches_the_load_and_keeps_the_pattern(load: float, gaps: list[float]) -> None:
    requests = with_arrivals([request()] * (len(gaps) + 1), np.concatenate([[3.0], 3.0 + np.cumsum(gaps)]))
    scaled = at_load(requests, load, UNIT, slots=4)
    assert load_of(scaled, UNIT, slots=4) == pytest.approx(load)
    assert scaled[0].arrival_s == 0.0
    new_gaps = np.diff([r.arrival_s for r in scaled])
    np.testing.assert_allclose(new_gaps / new_gaps.sum(), np.array(gaps) / sum(gaps), atol=1e-9)


def test_simultaneous_arrivals_have_no_load() -> None:
    with pytest.raises(ValueError, match="same moment"):
        at_load([request(), request()], 0.5, UNIT, 1)


def test_poisson_arrivals_at_the_rate_for_a_load_offer_that_load() -> None:
    requests = [request()] * 20_000
    rate = rate_for_load(requests, 0.8, UNIT, slots=4)
    arrivals = gamma_arrivals(len(requests), rate, np.random.default_rng(1))
    assert load_of(with_arrivals(requests, arrivals), UNIT, 4) == pytest.approx(0.8, rel=0.03)


def test_gaps_have_the_asked_burstiness() -> None:
    for cv in (0.0, 0.5, 1.0, 3.0):
        gaps = np.diff(gamma_arrivals(50_000, 2.0, np.random.default_rng(3), cv))
        assert gaps.mean() == pytest.approx(0.5, rel=0.05)
        assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05, abs=1e-9)


@given(tokens=st.integers(1, 400), mean=st.floats(1, 6), seed=st.integers(0, 99))
def test_drawn_accept_lengths_add_up_and_never_exceed_a_step(tokens: int, mean: float, seed: int) -> None:
    lengths = geometric_accept_lengths(tokens, mean, 5, np.random.default_rng(seed))
    assert sum(lengths) == tokens
    assert 1 <= min(lengths) <= max(lengths) <= 6


def test_drawn_accept_lengths_have_the_asked_mean() -> None:
    lengths = geometric_accept_lengths(60_000, 2.7, 5, np.random.default_rng(0))
    assert np.mean(lengths) == pytest.approx(2.7, rel=0.02)


@given(donor=st.lists(st.integers(1, 6), min_size=1, max_size=30), tokens=st.integers(1, 200), seed=st.integers(0, 99))
def test_resampling_reads_the_donor_in_its_order(donor: list[int], tokens: int, seed: int) -> None:
    lengths = resampled_accept_lengths(tokens, donor, np.random.default_rng(seed))
    assert sum(lengths) == tokens
    rounds = donor * (len(lengths) // len(donor) + 2)
    body = list(lengths[:-1])  # the last step may be cut short
    assert any(rounds[i : i + len(body)] == body for i in range(len(donor)))


def test_a_histogram_gives_back_its_own_steps() -> None:
    lengths = histogram_accept_lengths(3 + 4 + 3, (3, 2, 1), np.random.default_rng(5))
    assert sorted(lengths) == [1, 1, 1, 2, 2, 3]
    assert histogram_accept_lengths(3, (0, 0), np.random.default_rng(5)) == (1, 1, 1)
