"""The policies that laps-sd is measured against do what their authors describe."""

import random

import pytest

from laps_sd.scheduler import POLICIES, Policy, make_policy, new_request


def test_fcfs_never_preempts_and_hrrn_lets_short_prompts_that_waited_pass(tiny_engine, job):
    engine = tiny_engine(make_policy("hrrn"), 1)
    engine.arrive(job(0, 100))
    engine.round()
    long, short = engine.arrive(job(1, 5, prompt_tokens=1000)), engine.arrive(job(1, 5, prompt_tokens=10))
    for _ in range(20):
        engine.round()
    assert engine.waiting == [short, long]
    assert Policy().victim(short, engine.running) is None


def test_las_serves_the_least_attained_and_equals_take_turns(tiny_engine, job):
    finished = tiny_engine(make_policy("las"), 1).run([job(0, 40), job(8, 4)])
    assert finished[1] <= 16
    assert finished[0] == 44


def test_mlfq_joins_by_prefill_and_sinks_by_service(tiny_engine, job):
    engine = tiny_engine(make_policy("mlfq"), 1)
    state = engine.arrive(job(0, 100))
    assert state.perceived_service == 0
    engine.round()
    for _ in range(15):
        engine.round()
    assert state.perceived_service == 1
    for _ in range(32):
        engine.round()
    assert state.perceived_service == 2


def test_mlfq_lets_nobody_starve(tiny_engine, job):
    policy = make_policy("mlfq")
    engine = tiny_engine(policy, 1)
    state = engine.arrive(job(0, 100))
    for _ in range(20):
        engine.round()
    engine.running.remove(state)
    policy.on_preempt(state)
    policy.start_round(policy.starve)
    late = engine.arrive(job(0, 5))
    queue = [late, state]
    policy.rank(queue)
    assert queue == [state, late]


def test_sjf_serves_the_shortest_predicted_and_never_preempts(tiny_engine, job):
    finished = tiny_engine(make_policy("sjf-predicted"), 1).run([job(0, 30, 100.0), job(1, 9, 50.0), job(1, 5, 10.0)])
    assert finished == {0: 30, 2: 35, 1: 44}


def test_the_clairvoyant_policy_is_never_beaten_with_one_slot(tiny_engine, job):
    rng = random.Random(5)
    jobs = [job(rng.randrange(200), rng.randrange(1, 60), rng.uniform(1, 60)) for _ in range(60)]
    totals = {name: sum(tiny_engine(make_policy(name), 1).run(jobs).values()) for name in POLICIES.names()}
    assert min(totals.values()) == totals["oracle-srpt"]
    assert totals["laps-sd"] < totals["fcfs"] or totals["laps-sd"] <= totals["las"]


def test_the_clairvoyant_policy_asks_for_the_truth():
    with pytest.raises(ValueError, match="true number"):
        make_policy("oracle-srpt").on_arrival(new_request(0, 5))
