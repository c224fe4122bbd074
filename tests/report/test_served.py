"""Pictures of what ran: a request's life has no gaps, and everything that is drawn was measured."""

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from laps_sd.report.served import gantt, latency_distribution, phases_of, queue_over_time


@st.composite
def lives(draw: st.DrawFn) -> dict[str, Any]:
    moments = sorted(draw(st.lists(st.integers(0, 500), min_size=3, max_size=13, unique=True)))
    arrival, *rest = moments
    if len(rest) % 2:
        rest.append(rest[-1] + 1)
    spans = [[rest[i], rest[i + 1]] for i in range(0, len(rest), 2)]
    return {"arrival": arrival, "first_token": spans[0][1], "end": spans[-1][1], "spans": spans}


@given(lives())
def test_the_phases_of_a_request_fill_its_life(rounds: dict[str, Any]) -> None:
    parts = sorted(part for phase in phases_of(rounds).values() for part in phase)
    assert parts[0][0] == rounds["arrival"]
    assert parts[-1][1] == rounds["end"]
    assert all(before[1] == after[0] for before, after in pairwise(parts))


def row(policy: str, name: str, rounds: dict[str, Any] | None, turn: int = 0) -> dict[str, Any]:
    return {"policy": policy, "round": turn, "request_id": name, "arrival_s": 0.0, "finish_s": 2.0,
            "laps_sd": None if rounds is None else {"rounds": rounds}}  # fmt: skip


LIFE = {"arrival": 10, "first_token": 13, "end": 30, "spans": [[12, 15], [20, 30]]}


def test_a_gantt_picture_shows_each_policy_and_each_preemption() -> None:
    rows = [row("fcfs", "a", {**LIFE, "spans": [[12, 30]]}), row("las", "a", LIFE), row("las", "b", LIFE, turn=1)]
    traces = {(trace.yaxis, trace.name): trace for trace in gantt(rows).data}
    assert len(traces) == 6, "two policies, three phases"
    assert traces["y2", "preempted"].x == (5, 10, None)
    assert traces["y", "preempted"].x == ()
    assert traces["y2", "running"].x == (2, 5, None, 10, 20, None), "from the first arrival on; the first turn only"


def test_the_queue_and_the_latencies_are_drawn_by_policy() -> None:
    queue = queue_over_time({"fcfs": [(5, 0), (6, 3)], "las": [(1, 1)]})
    assert [(trace.name, trace.x, trace.y) for trace in queue.data] == [("fcfs", (0, 1), (0, 3)), ("las", (0,), (1,))]
    found = latency_distribution([row("fcfs", "a", None), {**row("fcfs", "b", None), "finish_s": 1.0}])
    assert (found.data[0].x, found.data[0].y) == ((1.0, 2.0), (0.5, 1.0))
