"""What every policy owes, whatever it thinks of the requests."""

import random
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laps_sd.scheduler import POLICIES, Policy, make_policy
from laps_sd.scheduler.policies.catalogue import policy_names

ALL = policy_names()
workloads = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 40), st.one_of(st.none(), st.floats(1, 200)), st.integers(0, 1)),
    min_size=1,
    max_size=24,
)
with_fixtures = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)


@pytest.mark.parametrize("name", ALL)
@given(work=workloads, slots=st.integers(1, 4))
@with_fixtures
def test_every_request_is_served_to_its_end_and_no_slot_idles_while_one_waits(name, work, slots, tiny_engine, job):
    jobs = [job(*w) for w in work]
    finished = tiny_engine(make_policy(name), slots).run(jobs)  # asserts work conservation in every round
    arrivals = sorted(j.arrives for j in jobs)
    assert set(finished) == set(range(len(jobs)))
    for arrival, end in finished.items():
        assert end >= arrivals[arrival] + 1


@pytest.mark.parametrize("name", ALL)
@given(work=workloads, seed=st.randoms(use_true_random=False))
@with_fixtures
def test_ranking_is_a_permutation_that_does_not_depend_on_the_order_of_the_queue(name, work, seed, tiny_engine, job):
    engine = tiny_engine(make_policy(name), 1)
    for w in work:
        engine.arrive(job(*w))
    ranked = list(engine.waiting)
    engine.policy.rank(ranked)
    shuffled = list(engine.waiting)
    seed.shuffle(shuffled)
    engine.policy.rank(shuffled)
    assert ranked == shuffled
    assert sorted(s.arrival for s in ranked) == list(range(len(work)))


@pytest.mark.parametrize("name", ALL)
def test_equals_are_served_in_the_order_of_their_arrival(name, tiny_engine, job):
    finished = tiny_engine(make_policy(name), 1).run([job(0, 5, 20.0) for _ in range(6)])
    if name not in ("las", "mlfq", "laps-sd:paper", "laps-sd:unseeded"):  # these let equals take turns
        assert finished == {i: 5 * (i + 1) for i in range(6)}
    assert list(finished) == sorted(finished)


@pytest.mark.parametrize("name", [n for n in ALL if n != "fcfs"])
def test_the_client_s_priority_goes_before_anything_predicted(name, tiny_engine, job):
    engine = tiny_engine(make_policy(name), 1)
    low, high = engine.arrive(job(0, 5, 5.0, 0)), engine.arrive(job(0, 50, 500.0, 1))
    engine.policy.rank(engine.waiting)
    assert engine.waiting == [high, low]


DECISIONS = """
import random
from laps_sd.scheduler import Prediction, SurvivalCurve, make_policy, new_request
from laps_sd.scheduler.policies.catalogue import policy_names
for name in policy_names():
    policy, rng, states = make_policy(name), random.Random(3), []
    for i in range(40):
        prediction = Prediction(SurvivalCurve.lognormal(rng.uniform(5, 500), 0.5), 2.0, 8.0) if i % 4 else None
        states.append(new_request(i, 9, settings=policy.settings, prediction=prediction, true_steps=50))
        policy.on_arrival(states[-1])
    running, waiting = states[:8], states[8:]
    for s in running:
        policy.on_admit(s)
    for _ in range(30):
        policy.start_round()
        for s in running:
            policy.on_step(s, 2, 5, 3)
    policy.rank(waiting)
    victim = policy.victim(waiting[0], running)
    print(name, [s.arrival for s in waiting], victim and victim.arrival)
"""


def test_every_policy_decides_alike_in_every_process():
    outputs = {
        subprocess.run(
            [sys.executable, "-c", DECISIONS], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert outputs.pop().count("\n") == len(ALL)


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
    from laps_sd.scheduler import new_request

    with pytest.raises(ValueError, match="true number"):
        make_policy("oracle-srpt").on_arrival(new_request(0, 5))


@pytest.mark.parametrize("name", ["sjf", "laps-sd:", "fcfs:paper", "laps-sd:best", ""])
def test_an_unknown_policy_is_refused_with_the_names_of_all(name):
    if name == "laps-sd:":
        assert make_policy(name).name == "laps-sd"
        return
    with pytest.raises(ValueError, match="known are fcfs, hrrn"):
        make_policy(name)
