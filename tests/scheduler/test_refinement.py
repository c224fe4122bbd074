"""Refined lengths in the core: they move requests, are believed as far as they were right, and can be switched off."""

import numpy as np
import pytest

from laps_sd.scheduler import (
    CostModel,
    Machine,
    Policy,
    Prediction,
    Refinement,
    ReplayRequest,
    Settings,
    SurvivalCurve,
    make_policy,
    new_request,
    simulate,
)
from laps_sd.scheduler.policies.laps_sd import LapsSd
from laps_sd.scheduler.simulator.predictions import noisy_refinements
from laps_sd.scheduler.simulator.study import Study, Trial, Workload


def lognormal(tokens, sigma=0.3):
    return SurvivalCurve.lognormal(tokens, sigma)


def running(policy, arrival, predicted, steps=0):
    state = new_request(arrival, 10, settings=policy.settings, prediction=Prediction(lognormal(predicted, 0.7)))
    policy.on_arrival(state)
    policy.on_admit(state)
    for _ in range(steps):
        policy.start_round()
        policy.on_step(state, 0, 0, 1)
    return state


def test_a_refinement_reads_at_least_one_token():
    with pytest.raises(ValueError, match="at least one token"):
        Refinement(0, lognormal(9))


def test_what_is_left_is_at_least_one_token_and_within_the_limit():
    refinement = Refinement(64, lognormal(100))
    assert refinement.left() > 20
    assert refinement.left(cap=70) <= 6
    assert Refinement(500, lognormal(3, 0.1)).left() >= 1


def test_the_perceived_service_follows_at_once():
    policy = LapsSd(slots=4)
    state = running(policy, 0, predicted=100, steps=64)
    before = state.perceived_service
    policy.on_refine(state, Refinement(64, lognormal(1000)))
    assert state.perceived_service > 2 * before
    policy.on_refine(state, Refinement(64, lognormal(70, 0.05)))
    assert state.perceived_service < before


def test_kv_is_reserved_by_the_refined_length():
    policy = LapsSd(slots=4)
    state = running(policy, 0, predicted=100, steps=64)
    policy.on_refine(state, Refinement(64, lognormal(2000)))
    assert policy.reserve_tokens(state) > 500


@pytest.mark.parametrize("preset", ["laps-sd:no-refinement", "laps-sd:acceptance-only"])
def test_it_can_be_switched_off(preset):
    policy = make_policy(preset, slots=4)
    state = running(policy, 0, predicted=100, steps=64)
    before = state.perceived_service
    policy.on_refine(state, Refinement(64, lognormal(1000)))
    assert state.refinements == ()
    assert state.perceived_service == before


def test_a_request_without_prediction_is_not_refined():
    policy = LapsSd(slots=4)
    state = new_request(0, 10, settings=policy.settings)
    policy.on_arrival(state)
    policy.on_refine(state, Refinement(64, lognormal(1000)))
    assert state.refinements == ()


def test_lengths_are_believed_by_the_number_of_tokens_read_as_far_as_they_were_right():
    policy = LapsSd(Settings(trust_prior=1, review_every=8), slots=4)
    random = np.random.default_rng(0)
    for i in range(96):
        length = int(random.integers(140, 900))
        state = running(policy, i, predicted=200, steps=128)
        policy.on_refine(state, Refinement(64, lognormal(float(random.integers(140, 900)))))  # says nothing
        policy.on_refine(state, Refinement(128, lognormal(length, 0.1)))
        for _ in range(length - 128):
            policy.on_step(state, 0, 0, 1)
        policy.on_finish(state)
    trust = policy.population
    assert trust.trust_at(64) < 0.3
    assert trust.trust_at(128) > 0.8
    assert trust.trust_at(256) == Settings().most_trust  # nothing is known of it yet


class Listening(Policy):
    """Notes what it is told of refinements."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[int, int, int]] = []

    def on_refine(self, state, refinement):
        self.told.append((state.arrival, refinement.at, state.generated))


def replayed(name, output, lengths, at):
    refinements = tuple(Refinement(tokens, lognormal(output)) for tokens in at)
    return ReplayRequest(name, 0.0, 5, output, lengths, refinements=refinements)


def test_a_replay_tells_each_refinement_once_when_its_tokens_are_there():
    policy = Listening()
    requests = [replayed("a", 21, (4,) * 5, (6, 12)), replayed("b", 9, (4, 4), (2, 8, 9))]
    simulate(requests, policy, Machine(2, CostModel.unit()))
    # The prefill emits the first token; "b" ends with its ninth, and what has ended is not refined.
    assert sorted(policy.told) == [(0, 6, 9), (0, 12, 13), (1, 2, 5)]


def test_refinements_of_a_replay_read_more_and_more():
    with pytest.raises(ValueError, match="must read more tokens"):
        replayed("a", 21, (4,) * 5, (12, 6))


def test_noisy_refinements_have_the_stated_quality_and_keep_part_of_the_error():
    random = np.random.default_rng(0)
    requests = [
        ReplayRequest(str(i), 0.0, 5, n, (1,) * n, prediction=Prediction(lognormal(n * np.exp(0.7 * z), 0.7)))
        for i, (n, z) in enumerate(zip(random.integers(200, 900, 2000).tolist(), random.normal(size=2000), strict=True))
    ]
    found = noisy_refinements(requests, {128: 0.2, 64: 0.4, 1000: 0.1}, random)
    assert {tuple(r.at for r in own) for own in found} == {(64, 128)}  # nobody gets to 1,000
    true = np.log([r.output_tokens for r in requests])
    arrival = np.log([r.prediction.length.quantile(0.5) for r in requests]) - true
    errors = {at: np.log([own[k].curve.quantile(0.5) for own in found]) - true for k, at in enumerate((64, 128))}
    assert np.std(errors[64]) == pytest.approx(0.4, rel=0.1)
    assert np.std(errors[128]) == pytest.approx(0.2, rel=0.1)
    assert np.corrcoef(arrival, errors[64])[0, 1] == pytest.approx(0.8, abs=0.05)


def test_noisy_refinements_need_predictions_and_a_spread():
    plain = [ReplayRequest("a", 0.0, 5, 9, (1,) * 9)]
    with pytest.raises(ValueError, match="every request has a prediction"):
        noisy_refinements(plain, {64: 0.4}, np.random.default_rng(0))
    told = [ReplayRequest("a", 0.0, 5, 9, (1,) * 9, prediction=Prediction(lognormal(9)))]
    with pytest.raises(ValueError, match="must not be negative"):
        noisy_refinements(told, {64: -0.4}, np.random.default_rng(0))


def test_with_one_slot_good_refinements_pay():
    """Free preemption, vague predictions: whoever turns out long gives way as soon as that is known."""
    random = np.random.default_rng(1)
    lengths = np.exp(random.normal(5, 1, 150)).astype(int) + 2
    requests = tuple(ReplayRequest(str(i), 0.0, 5, int(n), (1,) * int(n)) for i, n in enumerate(lengths))
    workload = Workload(requests, load=0.9, noise=1.0, refine={32: 0.05, 128: 0.05})
    study = Study(workload, Machine(1, CostModel.unit()))
    trials = [Trial(name, seed) for name in ("laps-sd", "laps-sd:no-refinement") for seed in range(3)]
    means = [r.summary["latency_s"]["mean"] for r in study.run(trials)]
    assert sum(means[:3]) < 0.95 * sum(means[3:])
