"""What users of serving engines complain about, as simulations.

Each test states the pain under the usual policy where it shows, and what holds with laps-sd. Seconds are those of the
cost model; with ``UNIT`` a verify step costs one.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from laps_sd.scheduler.cost_fit import slower_from
from laps_sd.scheduler.outcomes import RequestOutcome, slowdown_by_length
from laps_sd.scheduler.policies.base import Policy
from laps_sd.scheduler.policies.catalogue import make_policy
from laps_sd.scheduler.policies.laps_sd import LapsSd
from laps_sd.scheduler.prediction import Prediction
from laps_sd.scheduler.service import COST_MODELS, CostModel
from laps_sd.scheduler.settings import Settings
from laps_sd.scheduler.simulator.engine import simulate
from laps_sd.scheduler.simulator.machine import Machine
from laps_sd.scheduler.simulator.predictions import noisy_predictions, shuffled, with_predictions
from laps_sd.scheduler.simulator.workload import ReplayRequest, gamma_arrivals, rate_for_load, with_arrivals
from laps_sd.scheduler.state import RequestState
from laps_sd.scheduler.survival import SurvivalCurve

UNIT = CostModel.unit()
#: Prefill of 1,000 tokens takes as long as ten verify steps of a full batch of eight.
REAL = CostModel(step_s=0.02, step_s_per_request=0.001, prefill_s=0.005, prefill_s_per_token=2.8e-4)


def request(name: str, arrival: float, steps: int, prompt: int = 50, **more: object) -> ReplayRequest:
    """A request of two tokens a step whose length is predicted well (30 % noise, known to the curve)."""
    tokens = 1 + 2 * steps
    prediction = Prediction(SurvivalCurve.lognormal(tokens, 0.3), 2.0, 16)
    return ReplayRequest(name, arrival, prompt, tokens, (2,) * steps, **{"prediction": prediction, **more})  # type: ignore[arg-type]


def chat(
    n: int, load: float, slots: int, seed: int = 0, sigma: float = 0.6, cost: CostModel = UNIT
) -> list[ReplayRequest]:
    """Lognormal answers (median 60 steps) in Poisson arrivals, predicted with noise."""
    rng = np.random.default_rng(seed)
    steps = np.clip(np.exp(rng.normal(np.log(60), 1.0, n)), 3, 1500).astype(int)
    requests = [
        request(str(i), 0.0, int(s), prompt=int(p))
        for i, (s, p) in enumerate(zip(steps, rng.integers(20, 400, n), strict=True))
    ]
    requests = with_arrivals(requests, gamma_arrivals(n, rate_for_load(requests, load, cost, slots), rng))
    return with_predictions(requests, noisy_predictions(requests, sigma, rng))


def replay(requests: Sequence[ReplayRequest], policy: str | Policy, machine: Machine) -> list[RequestOutcome]:
    if isinstance(policy, str):
        policy = make_policy(policy, None, machine.cost, machine.slots)
    return simulate(requests, policy, machine).outcomes


def mean(outcomes: Sequence[RequestOutcome]) -> float:
    return float(np.mean([o.latency_s for o in outcomes if o.latency_s is not None]))


def p99(outcomes: Sequence[RequestOutcome]) -> float:
    return float(np.quantile([o.latency_s for o in outcomes if o.latency_s is not None], 0.99))


def latency(outcomes: Sequence[RequestOutcome], name: str) -> float:
    found = next(o.latency_s for o in outcomes if o.request_id == name)
    assert found is not None
    return found


def test_1_short_requests_do_not_wait_behind_long_ones() -> None:
    requests = chat(400, load=0.9, slots=2)
    shortest = {
        policy: slowdown_by_length(replay(requests, policy, Machine(2)))[0][2] for policy in ("fcfs", "laps-sd")
    }
    assert shortest["fcfs"] > 10
    assert shortest["laps-sd"] < 3


def test_2_a_prompt_of_100k_tokens_does_not_block_the_prefills_behind_it() -> None:
    machine = Machine(slots=1, cost=REAL)
    running = request("running", 0.0, steps=100)
    huge = request("huge", 0.1, steps=20, prompt=100_000)
    short = [request(f"short{i}", 0.2, steps=10, prompt=100) for i in range(5)]
    prefill = machine.cost.prefill(huge.prompt_tokens)
    blocked, passed = (replay([running, huge, *short], p, machine) for p in ("fcfs", "laps-sd"))
    assert min(latency(blocked, f"short{i}") for i in range(5)) > prefill
    assert max(latency(passed, f"short{i}") for i in range(5)) < 0.3 * prefill
    assert latency(passed, "huge") < latency(blocked, "huge") + 6 * machine.service_s(short[0])


def test_3_lighter_requests_are_tried_when_the_first_does_not_fit() -> None:
    machine = Machine(slots=4, kv_tokens=1000)
    holder = request("holder", 0.0, steps=200, prompt=300, max_new_tokens=401)
    heavy = request("heavy", 1.0, steps=30, prompt=600, max_new_tokens=61, priority=0)
    light = [request(f"light{i}", 2.0, steps=40, prompt=40, max_new_tokens=81) for i in range(2)]
    outcomes = replay([holder, heavy, *light], LapsSd(Settings(preemption=False)), machine)
    assert max(latency(outcomes, f"light{i}") for i in range(2)) < 100
    stuck = replay([holder, heavy, *light], "fcfs", machine)
    assert min(latency(stuck, f"light{i}") for i in range(2)) > 150


def test_4_throughput_returns_after_retractions() -> None:
    # A burst predicted at a third of its real length: memory is over-subscribed. Then comes ordinary traffic.
    burst = []
    for i in range(24):
        steps = 60 + 6 * i
        short = Prediction(SurvivalCurve.lognormal((1 + 2 * steps) / 3, 0.3), 2.0, 16)
        burst.append(request(f"burst{i}", 0.0, steps, prompt=100, prediction=short))
    later = [request(f"later{i}", 1500.0 + 7 * i, steps=40, prompt=100) for i in range(100)]
    tight, ample = (replay([*burst, *later], "laps-sd", Machine(8, kv_tokens=kv)) for kv in (1600, None))
    assert all(o.finish_s is not None for o in tight)
    assert 0 < sum(o.preemptions for o in tight) <= 8 * len(burst)

    def rate(done: Sequence[RequestOutcome]) -> float:
        late = [o for o in done if o.request_id.startswith("later")]
        return sum(o.output_tokens for o in late) / (max(o.finish_s or 0 for o in late) - 1500.0)

    assert rate(tight) >= 0.95 * rate(ample)


class Hopeful(LapsSd):
    """Admits whoever fits now, as if nobody produced another token."""

    def reserve_tokens(self, state: RequestState) -> int:
        return 1


def test_5_admission_counts_what_requests_will_still_need() -> None:
    machine = Machine(slots=16, cost=REAL, kv_tokens=3000)
    requests = [request(str(i), 0.0, steps=120, prompt=100) for i in range(60)]
    careful, hopeful = (replay(requests, policy(cost=REAL, slots=16), machine) for policy in (LapsSd, Hopeful))
    assert sum(o.preemptions for o in careful) <= 0.1 * len(requests)
    assert sum(o.preemptions for o in hopeful) > 5 * max(sum(o.preemptions for o in careful), 1)
    assert mean(careful) < mean(hopeful)


def test_6_preemption_weighs_what_it_costs_to_recompute() -> None:
    preemptions, recomputed = [], []
    for per_token in (0.0, 2.8e-3):
        cost = replace(REAL, prefill_s_per_token=per_token)
        requests = chat(200, load=0.8, slots=2, cost=cost)
        outcomes = replay(requests, "laps-sd", Machine(2, cost, keep_kv=False))
        preemptions.append(sum(o.preemptions for o in outcomes))
        recomputed.append(
            sum(o.recomputed_tokens for o in outcomes) / sum(r.prompt_tokens + r.output_tokens for r in requests)
        )
    assert preemptions[0] > 10
    assert preemptions[1] < 0.5 * preemptions[0]
    assert recomputed[1] < 0.1


def test_7_a_preempted_request_keeps_its_place_and_is_not_preempted_again_and_again() -> None:
    # One request of middle length meets a stream of ever shorter ones, each of which would take its slot.
    victim = request("victim", 0.0, steps=150)
    stream = [request(f"s{i}", 5.0 + 12 * i, steps=10) for i in range(60)]
    for limit in (1, 3):
        outcomes = replay([victim, *stream], LapsSd(Settings(max_preemptions=limit, protect_steps=0)), Machine(1))
        assert next(o.preemptions for o in outcomes if o.request_id == "victim") <= limit
    # Its place: it resumes before a request like it that came later.
    twin = request("twin", 1.0, steps=150)
    outcomes = replay([victim, twin, *stream[:5]], "laps-sd", Machine(1))
    assert latency(outcomes, "victim") + 0.0 < latency(outcomes, "twin") + 1.0


def test_8_equals_do_not_displace_each_other_and_a_higher_priority_does() -> None:
    equals = [request(str(i), float(i), steps=80) for i in range(30)]
    assert sum(o.preemptions for o in replay(equals, "laps-sd", Machine(2))) == 0
    urgent = request("urgent", 40.0, steps=100, priority=1)
    outcomes = replay([*equals, urgent], "laps-sd", Machine(2))
    assert latency(outcomes, "urgent") == 100.0
    assert sum(o.preemptions for o in outcomes) == 1


def test_10_nobody_starves_under_an_endless_stream_of_shorter_requests() -> None:
    patience = 3.0
    long = request("long", 0.5, steps=200)
    stream = [request(f"s{i}", 9.0 * i, steps=10) for i in range(800)]  # more than one slot can do
    policy = LapsSd(Settings(patience=patience))
    outcomes = replay([*stream, long], policy, Machine(1))
    unbounded = replay([*stream, long], LapsSd(Settings(patience=1e9)), Machine(1))
    assert latency(outcomes, "long") < 200 + 1.5 * patience * 200 + 2 * 10 + latency(
        replay([long], "fcfs", Machine(1)), "long"
    )
    assert latency(unbounded, "long") > 3000


def test_11_speculation_is_slower_than_plain_decoding_from_the_batch_that_the_cost_model_names() -> None:
    cost = CostModel(step_s=0.02, step_s_per_request=0.002, plain_step_s=0.02, plain_step_s_per_request=0.0005)
    plain = CostModel(step_s=0.02, step_s_per_request=0.0005)
    batch = slower_from(cost, 2.0, 64)
    assert batch is not None
    for slots, speculation_pays in ((batch // 2, True), (2 * batch, False)):
        drafted = [request(str(i), 0.0, steps=50) for i in range(2 * slots)]
        undrafted = [replace(r, accept_lengths=(1,) * (r.output_tokens - 1)) for r in drafted]
        with_drafts = replay(drafted, "laps-sd", Machine(slots, cost))
        without = replay(undrafted, "laps-sd", Machine(slots, plain))
        assert (mean(with_drafts) < mean(without)) == speculation_pays


def test_12_the_posterior_counts_the_drafts_that_were_proposed() -> None:
    # Drafts flip between 2 and 8 per step; all of them are accepted, so the accept length is what was proposed.
    drafts = (2, 8) * 20
    steady = ReplayRequest("flips", 0.0, 10, 1 + sum(n + 1 for n in drafts), tuple(n + 1 for n in drafts), drafts, 8)
    seen: list[tuple[int, int]] = []

    class Watch(Policy):
        def on_step(self, state: RequestState, k: int, n: int, tokens: int) -> None:
            super().on_step(state, k, n, tokens)
            seen.append((k, n))

    replay([steady], Watch(), Machine(1))
    assert seen == [(n, n) for n in drafts]


def test_15_nothing_is_lost_where_capacity_does_not_bind() -> None:
    requests = chat(300, load=0.3, slots=32)
    fcfs, ours = (replay(requests, policy, Machine(32)) for policy in ("fcfs", "laps-sd"))
    assert mean(ours) == pytest.approx(mean(fcfs), rel=0.001)
    assert sum(o.preemptions for o in ours) == 0


def test_15_patience_is_relative_to_the_expected_work() -> None:
    policy = LapsSd(Settings())
    short, long = (RequestState_of(policy, i, request(str(i), 0.0, steps)) for i, steps in enumerate((100, 1000)))
    assert long.deadline == pytest.approx(10 * short.deadline, rel=0.1)


def RequestState_of(policy: LapsSd, arrival: int, r: ReplayRequest) -> RequestState:
    from laps_sd.scheduler.state import new_request

    state = new_request(arrival, r.prompt_tokens, settings=policy.settings, prediction=r.prediction)
    policy.on_arrival(state)
    return state


@pytest.mark.parametrize(("slots", "load", "bound"), [(1, 0.8, 1.5), (16, 0.95, 1.25)])
def test_16_the_tail_is_reported_and_bounded(slots: int, load: float, bound: float) -> None:
    ratios = []
    for seed in range(2):
        requests = chat(300, load, slots, seed)
        ours, oracle = (replay(requests, policy, Machine(slots)) for policy in ("laps-sd", "oracle-srpt"))
        ratios.append(p99(ours) / p99(oracle))
    assert np.mean(ratios) <= bound


def test_17_the_clients_priority_comes_before_what_is_predicted() -> None:
    requests = chat(300, load=1.2, slots=2)
    urgent = [replace(r, priority=1) if i % 10 == 0 else r for i, r in enumerate(requests)]
    outcomes = {o.request_id: o for o in replay(urgent, "laps-sd", Machine(2))}
    slowdowns = {
        priority: np.mean([outcomes[r.request_id].slowdown for r in urgent if r.priority == priority])
        for priority in (0, 1)
    }
    assert slowdowns[1] < 1.5
    assert slowdowns[0] > 2 * slowdowns[1]


def test_18_useless_predictions_are_noticed() -> None:
    fcfs, las, ours, trust = [], [], [], []
    for seed in range(2):
        requests = chat(500, load=0.8, slots=2, seed=seed)
        guesses = [r.prediction for r in requests if r.prediction is not None]
        wrong = with_predictions(requests, shuffled(guesses, np.random.default_rng(seed)))
        policy = LapsSd()
        ours.append(mean(replay(wrong, policy, Machine(2))))
        trust.append(policy.population.trust)
        fcfs.append(mean(replay(wrong, "fcfs", Machine(2))))
        las.append(mean(replay(wrong, "las", Machine(2))))
    assert max(trust) < 0.5
    assert np.mean(ours) <= 1.1 * min(np.mean(fcfs), np.mean(las))


@pytest.mark.parametrize("accepted", [1, 2, 4])
@pytest.mark.parametrize("cost", [CostModel(step_s=1, prefill_s=1), COST_MODELS["cpu"]], ids=["assumed", "cpu"])
def test_in_a_burst_swaps_ride_when_the_first_slot_is_free(cost, accepted):
    """Long answers fill the slots, short requests come soon after: the burst of tests/e2e/test_riding.py.

    Where all that run are of one length they end together, and there is nobody to give way.
    """

    def burst(first: int) -> list[ReplayRequest]:
        lengths = [*([48] * first), *([96] * (16 - first)), *(4 + i % 5 for i in range(16))]
        late = cost.prefill(80) + 8 / accepted * cost.tau(4)
        requests = []
        for i, n in enumerate(lengths):
            steps = (1 if n % accepted else 0) + n // accepted
            accepts = tuple(min(accepted, n - accepted * step) for step in range(steps))
            prediction = Prediction(SurvivalCurve.lognormal(n, 0.1), accepted, 16)
            arrival = 1e-6 * i + (late if i >= 16 else 0.0)
            requests.append(ReplayRequest(str(i), arrival, 20, n, accepts, prediction=prediction))
        return requests

    machine = Machine(4, cost)
    swapped, kept = (replay(burst(1), name, machine) for name in ("laps-sd", "laps-sd:no-preemption"))
    assert sum(o.preemptions for o in swapped) >= 3, "all others that ran gave way in one launch"
    assert mean(swapped) < 0.96 * mean(kept)
    assert sum(o.preemptions for o in replay(burst(4), "laps-sd", machine)) == 0
