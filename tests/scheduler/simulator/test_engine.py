"""The simulated machine: small runs by hand, and what holds for every policy and workload."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps_sd.extensions import POLICIES
from laps_sd.scheduler.outcomes import RequestOutcome
from laps_sd.scheduler.policies.base import Policy
from laps_sd.scheduler.policies.catalogue import make_policy
from laps_sd.scheduler.prediction import Prediction
from laps_sd.scheduler.service import CostModel
from laps_sd.scheduler.simulator.engine import simulate
from laps_sd.scheduler.simulator.kv_pool import KvPool
from laps_sd.scheduler.simulator.machine import Machine
from laps_sd.scheduler.simulator.study import Study, Trial, Workload
from laps_sd.scheduler.simulator.workload import ReplayRequest
from laps_sd.scheduler.state import new_request
from laps_sd.scheduler.survival import SurvivalCurve

UNIT = CostModel.unit()
COSTLY = CostModel(step_s=1.0, step_s_per_request=0.5, prefill_s=1.0, prefill_s_per_token=0.01)


def request(name: str, arrival: float, steps: int, prompt: int = 10, tokens: int = 2, **more: object) -> ReplayRequest:
    """A request whose prefill emits one token and whose steps emit ``tokens`` each."""
    return ReplayRequest(name, arrival, prompt, 1 + steps * tokens, (tokens,) * steps, **more)  # type: ignore[arg-type]


def predicted(r: ReplayRequest) -> ReplayRequest:
    return replace(r, prediction=Prediction(SurvivalCurve.lognormal(r.output_tokens, 0.3), r.accept_length, 16))


def replay(
    requests: Sequence[ReplayRequest], policy: str = "fcfs", machine: Machine | None = None
) -> dict[str, RequestOutcome]:
    machine = machine or Machine(slots=1)
    result = simulate(requests, make_policy(policy, None, machine.cost, machine.slots), machine)
    return {o.request_id: o for o in result.outcomes}


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_a_request_alone_takes_its_service() -> None:
    outcome = replay([request("a", 5.0, steps=3, prompt=100)], machine=Machine(slots=4, cost=COSTLY))["a"]
    assert outcome.first_token_s == 5.0 + 2.0  # 1 s and 100 tokens at 10 ms
    assert outcome.finish_s == 5.0 + 2.0 + 3 * 1.5
    assert (outcome.slowdown, outcome.output_tokens, outcome.preemptions) == (1.0, 7, 0)


def test_a_request_that_ends_at_its_prefill_makes_no_step() -> None:
    outcome = replay([ReplayRequest("a", 0.0, 100, 1, ())], machine=Machine(cost=COSTLY))["a"]
    assert (outcome.finish_s, outcome.tpot_s) == (2.0, None)


def test_tokens_of_the_first_step_are_the_first_where_the_prefill_emits_none() -> None:
    outcome = replay([ReplayRequest("a", 0.0, 10, 6, (3, 3))])["a"]
    assert (outcome.first_token_s, outcome.finish_s) == (1.0, 2.0)


def test_with_one_slot_the_second_waits_for_the_first() -> None:
    done = replay([request("a", 0.0, 4), request("b", 1.0, 2)])
    assert (done["a"].finish_s, done["b"].first_token_s, done["b"].finish_s) == (4.0, 4.0, 6.0)


def test_requests_that_run_together_share_longer_steps() -> None:
    machine = Machine(slots=2, cost=CostModel(step_s=1.0, step_s_per_request=0.5))
    done = replay([request("a", 0.0, 2), request("b", 0.0, 4)], machine=machine)
    assert done["a"].finish_s == 2 * 2.0
    assert done["b"].finish_s == 2 * 2.0 + 2 * 1.5


def test_prefill_goes_first_and_decoding_waits() -> None:
    machine = Machine(slots=2, cost=CostModel(step_s=1.0, prefill_s_per_token=0.01))
    done = replay([request("a", 0.0, 3, prompt=0), request("b", 0.5, 1, prompt=400)], machine=machine)
    # a decodes from 0 to 1; then b is prefilled for 4 s; then both decode.
    assert done["b"].first_token_s == 5.0
    assert (done["a"].finish_s, done["b"].finish_s) == (7.0, 6.0)


def test_a_long_prompt_is_prefilled_in_chunks_and_others_join_the_last() -> None:
    machine = Machine(slots=2, cost=CostModel(prefill_s=1.0), chunk_tokens=100)
    done = replay([request("long", 0.0, 1, prompt=250), request("short", 0.0, 1, prompt=50)], machine=machine)
    assert done["long"].first_token_s == 3.0
    assert done["short"].first_token_s == 3.0


@pytest.mark.parametrize(("keep", "recomputed"), [(True, 1), (False, 1 + 2 * 10)])
def test_a_preempted_request_recomputes_what_was_not_kept(keep: bool, recomputed: int) -> None:
    requests = [predicted(request("long", 0.0, 100)), predicted(request("short", 10.0, 2))]
    done = replay(requests, "oracle-srpt", Machine(slots=1, keep_kv=keep))
    assert (done["long"].preemptions, done["long"].recomputed_tokens) == (1, recomputed)
    assert (done["short"].finish_s, done["long"].finish_s) == (12.0, 102.0)


def test_recomputing_takes_time() -> None:
    machine = Machine(slots=1, cost=CostModel(prefill_s_per_token=0.1), keep_kv=False)
    requests = [request("long", 0.0, 100, prompt=10), request("short", 11.0, 2, prompt=0)]
    done = replay(requests, "oracle-srpt", machine)
    # 1 s of prefill, 102 steps, and 21 generated tokens computed again (the prompt was kept).
    assert done["long"].finish_s == pytest.approx(1 + 102 + 2.1)


def test_a_request_that_never_fits_fails_and_the_others_do_not() -> None:
    requests = [request("big", 0.0, 5, prompt=500), request("grows", 0.0, 200), request("ok", 0.0, 5)]
    done = replay(requests, machine=Machine(slots=1, kv_tokens=100))
    assert done["big"].finish_s is None
    assert done["grows"].finish_s is None
    assert done["grows"].output_tokens > 50
    assert done["ok"].finish_s is not None


def test_when_kv_runs_out_the_last_in_the_order_is_retracted_and_comes_back() -> None:
    requests = [request("first", 0.0, 20, max_new_tokens=1), request("second", 0.0, 20, max_new_tokens=1)]
    done = replay(requests, machine=Machine(slots=2, kv_tokens=80))
    assert (done["first"].preemptions, done["first"].finish_s) == (0, 20.0)
    assert done["second"].preemptions >= 1
    assert done["second"].recomputed_tokens > 0
    assert done["second"].finish_s is not None


# --- KV memory -------------------------------------------------------------------------------------------------------


def test_what_was_left_behind_longest_ago_is_evicted_first_and_from_its_end() -> None:
    pool = KvPool(100)
    old, new = new_request(0, 40), new_request(1, 40)
    old.cached_tokens = new.cached_tokens = 40
    pool.leave(old)
    pool.leave(new)
    pool.hold(30)
    assert (old.cached_tokens, new.cached_tokens) == (30, 40)
    pool.hold(40)
    assert (old.cached_tokens, new.cached_tokens) == (0, 30)
    pool.reclaim(new)
    pool.hold(30)
    assert (new.cached_tokens, pool.free) == (30, 0)


def test_more_than_there_is_cannot_be_held() -> None:
    pool = KvPool(10)
    with pytest.raises(ValueError, match="11 KV tokens"):
        pool.hold(11)


# --- whatever the workload -------------------------------------------------------------------------------------------

REQUESTS = st.lists(
    st.builds(
        lambda arrival, steps, prompt, tokens, priority: (arrival, steps, prompt, tokens, priority),
        st.integers(0, 60),
        st.integers(1, 30),
        st.integers(0, 200),
        st.integers(1, 6),
        st.sampled_from((0, 0, 0, 1)),
    ),
    min_size=1,
    max_size=25,
)
ALL = [*POLICIES.names(), "laps-sd:paper"]


def build(rows: list[tuple[int, int, int, int, int]]) -> list[ReplayRequest]:
    return [
        predicted(request(str(i), float(a), s, p, t, priority=priority))
        for i, (a, s, p, t, priority) in enumerate(rows)
    ]


@settings(max_examples=40, deadline=None)
@given(rows=REQUESTS, policy=st.sampled_from(ALL), slots=st.integers(1, 6), kv=st.sampled_from((None, 700)))
def test_every_request_is_served_whole_and_no_faster_than_alone(
    rows: list[tuple[int, int, int, int, int]], policy: str, slots: int, kv: int | None
) -> None:
    requests = build(rows)
    cost = CostModel(step_s=1.0, step_s_per_request=0.1, prefill_s=0.2, prefill_s_per_token=0.01)
    done = replay(requests, policy, Machine(slots, cost, kv, chunk_tokens=128))
    assert len(done) == len(requests)
    for r in requests:
        outcome = done[r.request_id]
        assert outcome.output_tokens == r.output_tokens
        assert outcome.slowdown is not None
        # Chunks beside others may save the fixed cost of a prefill, nothing else.
        assert outcome.slowdown >= 1 - 0.2 * (1 + r.prompt_tokens / 128) / (outcome.service_s or 1)


@settings(max_examples=40, deadline=None)
@given(rows=REQUESTS, policy=st.sampled_from(ALL), slots=st.integers(1, 6))
def test_no_slot_is_idle_while_somebody_waits(
    rows: list[tuple[int, int, int, int, int]], policy: str, slots: int
) -> None:
    result = simulate(build(rows), make_policy(policy, None, UNIT, slots), Machine(slots))
    timeline = result.timeline
    assert all(running == slots for waiting, running in zip(timeline.waiting, timeline.running, strict=True) if waiting)


@settings(max_examples=40, deadline=None)
@given(rows=REQUESTS, policy=st.sampled_from(ALL))
def test_with_free_preemption_nobody_beats_the_clairvoyant_on_one_slot(
    rows: list[tuple[int, int, int, int, int]], policy: str
) -> None:
    # Shortest remaining processing time is optimal for the mean on one server (Schrage 1968).
    requests = [replace(r, priority=0) for r in build(rows)]

    def total(name: str) -> float:
        return sum(o.latency_s or 0.0 for o in replay(requests, name).values())

    assert total("oracle-srpt") <= total(policy) + 1e-6


class AskedEveryRound(Policy):
    """fcfs that the simulator must ask in every round, since it might preempt (and never does)."""

    preemptive = True


@settings(max_examples=30, deadline=None)
@given(rows=REQUESTS, slots=st.integers(1, 4), tau=st.sampled_from((1.0, 0.3)))
def test_skipping_rounds_in_which_nothing_can_change_changes_nothing(
    rows: list[tuple[int, int, int, int, int]], slots: int, tau: float
) -> None:
    machine = Machine(slots, CostModel(step_s=tau))
    skipped = simulate(build(rows), Policy(slots=slots), machine).outcomes
    asked = simulate(build(rows), AskedEveryRound(slots=slots), machine).outcomes
    assert [o.finish_s for o in skipped] == pytest.approx([o.finish_s for o in asked])
    assert [o.first_token_s for o in skipped] == pytest.approx([o.first_token_s for o in asked])


# --- studies ---------------------------------------------------------------------------------------------------------


def small_study() -> Study:
    requests = tuple(request(str(i), 0.0, 3 + 7 * i % 40) for i in range(60))
    return Study(Workload(requests, load=0.9, noise=0.5, corrupt="shuffled"), Machine(slots=2))


def test_the_same_seed_gives_the_same_replay_in_any_process() -> None:
    trials = [Trial(policy, seed, load) for seed in (1, 2) for policy in ("laps-sd", "las") for load in (None, 0.5)]
    here, there = small_study().run(trials), small_study().run(trials, workers=2)
    assert [r.trial for r in there] == trials
    for a, b in zip(here, there, strict=True):
        assert a.latency_quantiles.tolist() == b.latency_quantiles.tolist()
        assert a.slowdown == b.slowdown
        assert a.timeline.waiting == b.timeline.waiting


def test_seeds_differ() -> None:
    first, second = small_study().run([Trial("fcfs", 1), Trial("fcfs", 2)])
    assert first.latency_quantiles.tolist() != second.latency_quantiles.tolist()


def test_windows_of_a_timed_trace_keep_its_pattern() -> None:
    requests = tuple(request(str(i), 10.0 * i + (i % 3), 5) for i in range(50))
    workload = Workload(requests, timed=True, n=20)
    drawn = workload.draw(Machine(), seed=3)
    first = int(drawn[0].request_id)
    assert [int(r.request_id) for r in drawn] == list(range(first, first + 20))
    assert drawn[0].arrival_s == 0.0
    assert drawn[5].arrival_s == requests[first + 5].arrival_s - requests[first].arrival_s


def test_a_sample_uses_every_request_once_before_any_twice() -> None:
    requests = tuple(request(str(i), 0.0, 5) for i in range(10))
    drawn = Workload(requests, n=25, rate=1.0).draw(Machine(), seed=0)
    counts = [sum(r.request_id == str(i) for r in drawn) for i in range(10)]
    assert set(counts) == {2, 3}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"requests": ()}, "no request"),
        ({"load": None}, "no arrivals"),
        ({"rate": 1.0}, "not both"),
    ],
)
def test_a_workload_that_says_too_little_or_too_much_is_refused(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        replace(small_study().workload, **change)  # type: ignore[arg-type]
