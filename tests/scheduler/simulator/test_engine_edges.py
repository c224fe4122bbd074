"""Machines, workloads and ends that are out of the ordinary: figures or a sentence come out, never a crash."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps_sd.extensions import POLICIES
from laps_sd.scheduler.outcomes import summarise
from laps_sd.scheduler.policies.catalogue import make_policy
from laps_sd.scheduler.policies.laps_sd import LapsSd
from laps_sd.scheduler.service import CostModel
from laps_sd.scheduler.simulator.engine import simulate
from laps_sd.scheduler.simulator.machine import Machine
from laps_sd.scheduler.simulator.study import Study, Trial, Workload, mean_slowdowns
from laps_sd.scheduler.simulator.workload import NoLoadError, ReplayRequest, at_load, rate_for_load


def request(name: int, arrival: float, steps: int, prompt: int = 4, first: int = 1) -> ReplayRequest:
    return ReplayRequest(str(name), arrival, prompt, first + steps, (1,) * steps, max_correct_drafts=0)


# --- by hand: 11, 3, 6 and 3 tokens that arrive at 0, 1, 2 and 12, one slot, a second a step --------------------------


@pytest.mark.parametrize(
    ("policy", "latencies", "ttfts", "preemptions"),
    [
        ("fcfs", [10, 11, 15, 7], [0, 9, 10, 5], 0),
        ("las", [19, 9, 13, 5], [0, 7, 8, 3], 1),
        ("mlfq", [10, 11, 15, 7], [0, 9, 10, 5], 0),
        ("oracle-srpt", [19, 2, 6, 2], [0, 0, 1, 0], 2),
    ],
)
def test_figures_by_hand(policy: str, latencies: list[float], ttfts: list[float], preemptions: int) -> None:
    work = [(10, 0.0), (2, 1.0), (5, 2.0), (2, 12.0)]
    requests = [request(i, arrival, steps) for i, (steps, arrival) in enumerate(work)]
    machine = Machine(slots=1)
    outcomes = simulate(requests, make_policy(policy), machine).outcomes
    assert [o.latency_s for o in outcomes] == latencies
    assert [o.ttft_s for o in outcomes] == ttfts
    figures = summarise(outcomes)
    assert figures["throughput_tokens_s"] == pytest.approx(23 / 19)
    assert figures["preemptions"] == preemptions


# --- memory -----------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20), st.integers(1, 60), st.integers(0, 30)), max_size=8),
    st.integers(1, 120),
    st.integers(1, 4),
    st.sampled_from(sorted(POLICIES.names())),
)
def test_a_prefill_that_emits_much_finds_room_or_fails(
    rows: list[tuple[int, int, int, int]], kv_tokens: int, slots: int, policy: str
) -> None:
    requests = [
        request(i, float(arrival), steps, prompt, first) for i, (arrival, steps, first, prompt) in enumerate(rows)
    ]
    machine = Machine(slots=slots, kv_tokens=kv_tokens, chunk_tokens=16)
    outcomes = simulate(requests, make_policy(policy, None, machine.cost, slots), machine).outcomes
    assert sorted(o.request_id for o in outcomes) == sorted(r.request_id for r in requests)
    for r, o in zip(sorted(requests, key=lambda r: r.arrival_s), outcomes, strict=True):
        assert o.finish_s is None or o.output_tokens == r.output_tokens <= kv_tokens


# --- loads and averages -----------------------------------------------------------------------------------------------


def test_requests_that_take_no_time_offer_no_load() -> None:
    requests = [request(i, float(i), 0) for i in range(3)]
    with pytest.raises(NoLoadError, match="take no time"):
        rate_for_load(requests, 0.9, CostModel.unit(), 1)
    with pytest.raises(NoLoadError, match="take no time"):
        at_load(requests, 0.9, CostModel.unit(), 1)


def test_seeds_with_fewer_parts_do_not_spoil_the_slowdown() -> None:
    requests = tuple(request(i, 0.0, 10, prompt=10 if i % 2 else 1000) for i in range(10))
    study = Study(Workload(requests, n=4, rate=1.0), Machine(slots=1, kv_tokens=50))
    trials = study.run([Trial("fcfs", seed) for seed in range(8)])
    assert len({len(t.slowdown) for t in trials}) > 1
    most = max(len(t.slowdown) for t in trials)
    expected = np.mean([t.slowdown for t in trials if len(t.slowdown) == most], axis=0)
    assert mean_slowdowns(trials) == [tuple(part) for part in expected.tolist()]
    assert mean_slowdowns([]) == []


# --- the end of a study -----------------------------------------------------------------------------------------------

_ENDLESS = """
from laps_sd.scheduler.simulator.study import Study, Trial, Workload
from laps_sd.scheduler.simulator.workload import ReplayRequest
if __name__ == "__main__":
    requests = tuple(ReplayRequest(str(i), 0.0, 4, 51, (1,) * 50) for i in range(50))
    trials = [Trial("fcfs", seed) for seed in range(100_000)]
    Study(Workload(requests, rate=1.0)).run(trials, workers=2, progress=lambda: print(flush=True))
"""


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads /proc")
def test_a_parent_that_is_killed_leaves_no_workers(tmp_path: Path) -> None:
    script = tmp_path / "endless.py"
    script.write_text(_ENDLESS)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()  # the workers work
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        parent.send_signal(signal.SIGKILL)
    assert len(children) >= 2
    until = time.monotonic() + 10
    left = children
    while left and time.monotonic() < until:
        time.sleep(0.1)
        left = [pid for pid in children if _runs(pid)]
    for pid in left:
        os.kill(int(pid), signal.SIGKILL)
    assert not left


def _runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_requests_that_fail_are_not_taken_for_short_ones() -> None:
    policy = LapsSd()
    before = policy.population.lengths.mean()
    requests = [request(i, float(i), 50, prompt=500) for i in range(40)]
    outcomes = simulate(requests, policy, Machine(slots=2, kv_tokens=100)).outcomes
    assert all(o.finish_s is None for o in outcomes)
    assert policy.population.lengths.mean() == before
