"""What every registered policy owes, whatever it thinks of the requests; those of installed packages too."""

import random
import subprocess
import sys
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laps_sd.scheduler import CostModel, Prediction, RequestState, SurvivalCurve, make_policy, new_request, policy_names

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


@pytest.mark.parametrize("name", ALL)
def test_no_clock_and_no_random_number_enters_a_decision(name, tiny_engine, job, monkeypatch):
    def forbidden(*_: object) -> float:
        raise AssertionError("ranks of one model would decide differently")

    rng = random.Random(7)
    jobs = [job(rng.randrange(40), rng.randrange(1, 30), rng.uniform(1, 60)) for _ in range(30)]
    for module, names in ((time, ("time", "perf_counter", "monotonic", "process_time")), (random, ("random",))):
        for function in names:
            monkeypatch.setattr(module, function, forbidden)
    assert len(tiny_engine(make_policy(name), 2).run(jobs)) == 30


HOOKS = ("arrive", "arrive", "arrive", "admit", "admit", "step", "preempt", "finish", "abort", "rounds", "cost", "rank")


@pytest.mark.parametrize("name", ALL)
@given(hooks=st.lists(st.sampled_from(HOOKS), max_size=60), rng=st.randoms(use_true_random=False))
@settings(max_examples=15, deadline=None)
def test_hooks_may_come_in_any_order(name, hooks, rng):
    """An engine admits from the middle, drops what waits and what runs, and asks between any two events."""
    policy = make_policy(name)
    waiting: list[RequestState] = []
    running: list[RequestState] = []
    for number, hook in enumerate(hooks):
        if hook == "arrive":
            prediction = Prediction(SurvivalCurve.lognormal(rng.uniform(1, 400), 0.5), 2.0, 8.0)
            state = new_request(
                number, rng.randrange(50), settings=policy.settings, priority=rng.randrange(2),
                prediction=prediction if rng.random() < 0.7 else None, true_steps=rng.randrange(1, 90),
            )  # fmt: skip
            policy.on_arrival(state)
            waiting.append(state)
        elif hook == "admit" and waiting:
            running.append(waiting.pop(rng.randrange(len(waiting))))
            policy.on_admit(running[-1])
        elif hook == "step":
            for state in running:
                policy.on_step(state, 1, 3, 2)
        elif hook == "preempt" and running:
            waiting.append(running.pop(rng.randrange(len(running))))
            policy.on_preempt(waiting[-1], rng.randrange(60))
        elif hook in ("finish", "abort") and (waiting or running):
            held = rng.choice([group for group in (waiting, running) if group])
            gone = held.pop(rng.randrange(len(held)))
            (policy.on_finish if hook == "finish" else policy.on_abort)(gone)
        elif hook == "rounds":
            policy.start_round(rng.randrange(5000))
        elif hook == "cost":
            policy.set_cost(CostModel(step_s=rng.uniform(0.01, 1), prefill_s=rng.uniform(0, 1)), rng.randrange(4))
        ranked = list(waiting)
        policy.rank(ranked)
        assert sorted(s.arrival for s in ranked) == sorted(s.arrival for s in waiting)
        waiting = ranked
        if waiting:
            assert policy.victim(waiting[0], running) in (None, *running)
            assert isinstance(policy.may_pass(waiting[0]), bool)
        assert all(policy.reserve_tokens(state) >= 1 for state in running)
