"""The scheduler's side keeps the policy informed of what SGLang does, and SGLang's queue in the policy's order."""

import gc
import random
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps_sd.scheduler import make_policy
from laps_sd.serving.requests.exchange import Attachment
from laps_sd.serving.requests.scheduler_side import SchedulerSide

Make = Callable[..., Any]


@pytest.fixture
def side() -> SchedulerSide:
    return SchedulerSide(make_policy("laps-sd", slots=2), max_correct_drafts=3)


@pytest.fixture
def arrive(side: SchedulerSide, make_req: Make, prediction: Make) -> Make:
    def one(rid: str, tokens: float | None = None, hint: int = 0, **kwargs: Any) -> Any:
        req = make_req(rid, **kwargs)
        side.on_received(req, Attachment(None if tokens is None else prediction(tokens), hint))
        return req

    return one


def order(side: SchedulerSide, *reqs: Any) -> list[str]:
    queue = list(reqs)
    side.rank(queue)
    assert sorted(map(id, queue)) == sorted(map(id, reqs)), "the queue keeps its members"
    return [req.rid for req in queue]


def test_the_request_expected_to_end_first_goes_first(side: SchedulerSide, arrive: Make) -> None:
    assert order(side, arrive("long", 90), arrive("short", 10), arrive("middle", 40)) == ["short", "middle", "long"]


def test_equal_requests_keep_the_order_of_arrival(side: SchedulerSide, arrive: Make) -> None:
    first, second = arrive("first", 30), arrive("second", 30)
    assert order(side, second, first) == ["first", "second"]


def test_unpredicted_requests_are_ranked_too(side: SchedulerSide, arrive: Make) -> None:
    assert set(order(side, arrive("a"), arrive("b", 10), arrive("c"))) == {"a", "b", "c"}


@pytest.mark.parametrize(("low_first", "expected"), [(False, ["high", "low"]), (True, ["low", "high"])])
def test_the_priority_field_is_respected_in_either_direction(
    make_req: Make, prediction: Make, low_first: bool, expected: list[str]
) -> None:
    side = SchedulerSide(make_policy("laps-sd"), low_priority_first=low_first)
    low, high = make_req("low", priority=1), make_req("high", priority=9)
    side.on_received(low, Attachment(prediction(10)))
    side.on_received(high, Attachment(prediction(90)))
    assert order(side, low, high) == expected


def test_a_hinted_priority_counts_until_the_field_says_otherwise(side: SchedulerSide, arrive: Make) -> None:
    assert order(side, arrive("plain", 10), arrive("urgent", 90, hint=1)) == ["urgent", "plain"]
    assert order(side, arrive("field", 90, hint=5, priority=0), arrive("hinted", 90, hint=1)) == ["hinted", "field"]


def test_steps_reach_the_posterior_and_the_length(side: SchedulerSide, arrive: Make) -> None:
    req = arrive("a", 50)
    order(side, req)
    side.on_admit(req)
    req.output_ids = [5]  # the prefill's token
    before = side.state_of(req).posterior.mean()
    for _ in range(10):
        side.on_step(req, correct=3, proposed=3, tokens=4)
        req.output_ids += [5] * 4
    state = side.state_of(req)
    assert (state.steps, state.generated) == (10, 41)
    assert state.posterior.mean() > before
    fields = side.on_finish(req, cut=False)
    assert fields["accept_length"] == 4.0
    assert fields["steps"] == 10


def test_plain_decoding_reports_no_accept_length(side: SchedulerSide, arrive: Make) -> None:
    req = arrive("a", 50)
    order(side, req)
    side.on_admit(req)
    side.on_step(req, correct=0, proposed=0, tokens=1)
    assert side.on_finish(req, cut=True)["accept_length"] is None


def test_what_was_learned_survives_preemption_and_retraction(side: SchedulerSide, arrive: Make) -> None:
    req = arrive("a", 50)
    order(side, req)
    side.on_admit(req)
    for _ in range(5):
        side.on_step(req, correct=2, proposed=3, tokens=3)
        req.output_ids += [5] * 3
    learned = side.state_of(req).posterior.mean()
    side.on_preempt(req, 24, "slots")
    order(side, req)
    req.prefix_len = 24
    side.on_admit(req)
    assert side.state_of(req).recomputed_tokens == 1
    order(side, req)  # SGLang put it back into the queue by itself: a retraction
    state = side.state_of(req)
    assert (state.preemptions, state.steps, state.generated) == (2, 5, 15)
    assert state.posterior.mean() == learned
    req.prefix_len = 0
    side.on_admit(req)
    assert state.recomputed_tokens == 1 + 25


def test_a_request_aborted_in_the_queue_is_forgotten(side: SchedulerSide, arrive: Make) -> None:
    keep, gone = arrive("keep", 10), arrive("gone", 20)
    order(side, keep, gone)
    order(side, keep)
    assert [state.arrival for state in side._waiting.values()] == [side.state_of(keep).arrival]


def test_a_running_request_that_sglang_dropped_is_forgotten_at_the_second_look(make_req: Make) -> None:
    in_flight: list[Any] = []
    side = SchedulerSide(make_policy("laps-sd", slots=2), in_flight=lambda: in_flight)
    keep, gone, waits = make_req("keep"), make_req("gone"), make_req("waits")
    for req in (keep, gone, waits):
        side.on_received(req, Attachment())
    side.rank([keep, gone, waits])
    for req in (keep, gone):
        side.on_admit(req)
    in_flight.append(keep)
    for _ in range(40):
        side.rank([waits])
    assert set(side._running) == {1, 2}, "between two batches it would be missed once"
    for _ in range(40):
        side.rank([waits])
    assert set(side._running) == {1}
    assert not gone.laps_sd.state.running
    assert [state.arrival for state in side.policy._victims] == [1]  # type: ignore[attr-defined]


def test_the_gauges_say_nothing_once_nobody_is_left(make_req: Make) -> None:
    class Gauges:
        """Stands in for the metrics: due once, then never again."""

        def __init__(self) -> None:
            self.shown: list[dict[str, int]] = []

        def due(self) -> bool:
            return not self.shown

        def show(self, phases: dict[str, list[Any]], *_: Any) -> None:
            self.shown.append({phase: len(states) for phase, states in phases.items()})

        def ranked(self, seconds: float) -> None: ...

        def recomputed(self, tokens: int) -> None: ...

    gauges: Any = Gauges()
    side = SchedulerSide(make_policy("laps-sd"), metrics=gauges)
    req = make_req("a")
    side.on_received(req, Attachment())
    side.rank([req])
    side.on_admit(req)
    side.on_finish(req, cut=False)
    assert gauges.shown == [{"waiting": 1, "running": 0}, {"waiting": 0, "running": 0}]


def test_a_far_shorter_request_takes_a_running_ones_slot(side: SchedulerSide, arrive: Make) -> None:
    running = [arrive("long", 900, limit=2000), arrive("longer", 1500, limit=2000)]
    order(side, *running)
    for req in running:
        side.on_admit(req)
        req.output_ids = [5]
    short = arrive("short", 8)
    order(side, short)
    assert side.victim(short, running) is running[1]
    as_long = arrive("as long", 1500, limit=2000)
    order(side, as_long)
    assert side.victim(as_long, running) is None


def test_retraction_keeps_the_request_that_ends_first(side: SchedulerSide, arrive: Make) -> None:
    reqs = [arrive("long", 900, limit=2000), arrive("short", 10), arrive("middle", 100)]
    assert side.keep_order(reqs) == [1, 2, 0]


def test_every_rank_decides_alike(make_req: Make, prediction: Make) -> None:
    def play(seed: int) -> list[list[str]]:
        rng = random.Random(7)  # what happens is the same on all ranks
        random.seed(seed)  # what a rank might draw by itself is not
        side = SchedulerSide(make_policy("laps-sd", slots=2))
        queue: list[Any] = []
        orders = []
        for i in range(60):
            req = make_req(f"r{i}", prompt=rng.randint(1, 50))
            side.on_received(req, Attachment(prediction(rng.randint(2, 90)) if rng.random() < 0.8 else None))
            queue.append(req)
            side.rank(queue)
            orders.append([r.rid for r in queue])
            if i % 3 == 2:
                done = queue.pop(0)
                side.on_admit(done)
                side.on_step(done, rng.randint(0, 3), 3, 2)
                side.on_finish(done, cut=False)
        return orders

    assert play(1) == play(2)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(["arrive", "admit", "step", "preempt", "finish", "abort", "drop"]), max_size=60),
    st.randoms(),
)
def test_whatever_happens_nothing_is_lost_or_kept_too_long(
    make_req: Make, events: list[str], rng: random.Random
) -> None:
    queue: list[Any] = []
    running: list[Any] = []
    dropped: set[int] = set()
    side = SchedulerSide(make_policy("laps-sd", slots=4), in_flight=lambda: running)
    policy: Any = side.policy
    for event in events:
        if event == "arrive":
            req = make_req(str(rng.random()), prompt=5, limit=50)
            side.on_received(req, Attachment())
            queue.append(req)
        elif event == "admit" and queue:
            req = queue.pop(0)
            side.on_admit(req)
            running.append(req)
        elif event == "step" and running:
            for req in running:
                side.on_step(req, 1, 3, 2)
                req.output_ids += [1, 1]
        elif event == "preempt" and running:
            req = running.pop(rng.randrange(len(running)))
            if rng.random() < 0.5:
                side.on_preempt(req, 3, "kv")
            queue.append(req)
        elif event == "finish" and running:
            side.on_finish(running.pop(), cut=rng.random() < 0.3)
        elif event == "abort" and queue:
            queue.pop(rng.randrange(len(queue)))
        elif event == "drop" and running:
            dropped.add(running.pop(rng.randrange(len(running))).laps_sd.arrival)
        side.rank(queue)
        here = {req.laps_sd.arrival for req in running}
        assert set(side._waiting) == set(policy._waiting) == {req.laps_sd.arrival for req in queue}
        assert here <= set(side._running) <= here | dropped
    for _ in range(64):
        side.rank(queue)
    assert set(side._running) == set(policy._victims._members) == {req.laps_sd.arrival for req in running}
    assert set(policy._ranked._members) == {req.laps_sd.arrival for req in queue}
    assert len(policy._ranked._items) == len(queue)


@pytest.mark.parametrize("limit", [0, 64])
def test_the_record_is_told_the_real_limit(make_req: Callable[..., Any], limit: int) -> None:
    side = SchedulerSide(make_policy("laps-sd"), keep_steps=True)
    req = make_req("a", limit=limit)
    side.on_received(req, Attachment())
    side.rank([req])
    side.on_admit(req)
    assert side.on_finish(req, cut=True)["measured"]["max_new_tokens"] == limit


def test_tokens_past_the_limit_are_no_part_of_the_accept_length(side: SchedulerSide, arrive: Make) -> None:
    """An answer of 4 tokens: one from the prefill, and 3 of the 8 that its one verify step gave."""
    req = arrive("a", limit=4)
    side.rank([req])
    side.on_admit(req)
    req.output_ids = [1]
    side.on_step(req, 7, 7, 8)
    req.output_ids = [1] * 9
    req.finished_len = 4
    fields = side.on_finish(req, cut=True)
    assert fields["accept_length"] == 3.0
    assert req.laps_sd.state.generated == 4


def test_tokens_past_the_end_are_no_part_of_the_accept_length(side: SchedulerSide, arrive: Make) -> None:
    req = arrive("a", limit=100)
    side.rank([req])
    side.on_admit(req)
    req.output_ids = [1]
    side.on_step(req, 3, 7, 4)
    req.output_ids = [1] * 5
    side.on_step(req, 3, 7, 4)
    req.output_ids = [1] * 9
    req.finished_len = 6
    fields = side.on_finish(req, cut=False)
    assert fields["accept_length"] == 2.5
    assert req.laps_sd.state.generated == 6


@pytest.mark.parametrize(
    ("asked", "known"),
    [
        ({"ignore_eos": True}, True),
        ({"ignore_eos": True, "stop_strs": ["."]}, False),
        ({"ignore_eos": True, "stop_regex_strs": ["a"]}, False),
        ({"ignore_eos": True, "grammar": object()}, False),
        ({}, False),
    ],
)
def test_the_length_of_an_answer_that_only_its_limit_ends_is_known(
    side: SchedulerSide, make_req: Make, prediction: Make, asked: dict[str, Any], known: bool
) -> None:
    req = make_req("a", limit=200, **asked)
    side.on_received(req, Attachment(prediction(20)))
    side.rank([req])
    assert req.laps_sd.state.runs_to_limit is known
    assert (side.reserve_tokens(req) == 200) is known
    fields = side.on_finish(req, cut=True)
    assert (fields["predicted_tokens"] == 200) is known


def test_an_answer_that_only_its_limit_ends_is_planned_without_a_prediction(
    side: SchedulerSide, make_req: Make
) -> None:
    plain, certain = make_req("a"), make_req("b", ignore_eos=True)
    for req in (plain, certain):
        side.on_received(req, Attachment())
    assert not side.plans_by_prediction(plain)
    assert side.plans_by_prediction(certain)


def test_a_request_that_ends_twice_is_counted_once(side: SchedulerSide, arrive: Make) -> None:
    """An abort of a chunked prompt is told at once, and may come along with the batch's results again."""
    req = arrive("a", 40)
    side.rank([req])
    side.on_admit(req)
    req.output_ids = [1]
    first = side.on_drop(req)
    policy: Any = side.policy
    departed = policy.population._departed
    assert side.on_finish(req, cut=True) == first
    assert policy.population._departed == departed


def test_what_is_about_to_end_or_cannot_resume_is_retracted_last(side: SchedulerSide, arrive: Make) -> None:
    reqs = [arrive(name, tokens) for name, tokens in (("short", 5), ("long", 500), ("ending", 900), ("hidden", 800))]
    reqs[2].to_finish = object()
    reqs[3].return_hidden_states = True
    side.rank(list(reqs))
    for req in reqs:
        side.on_admit(req)
    assert [reqs[i].rid for i in side.keep_order(reqs)] == ["ending", "hidden", "short", "long"]


def test_nothing_of_a_request_is_kept_once_the_policy_is_asked_no_more(side: SchedulerSide, arrive: Make) -> None:
    queue = [arrive(f"r{i}") for i in range(9)]
    order(side, *queue)
    held = [weakref.ref(req.laps_sd) for req in queue]
    side.stand_down("calc_priority")
    queue.clear()
    gc.collect()
    assert [ref() for ref in held] == [None] * 9


def test_the_record_says_from_when_to_when_a_request_held_a_slot(make_req: Make) -> None:
    side = SchedulerSide(make_policy("laps-sd"), keep_steps=True)
    req = make_req("a")
    side.on_received(req, Attachment())
    side.rank([req])
    side.on_admit(req)
    side.on_admit(req)  # a second chunk of its prompt
    side.on_preempt(req, 5, "slots")
    side.rank([req])
    side.on_admit(req)
    measured = side.on_finish(req, cut=False)["measured"]
    (start, lost), (again, open_end) = measured["slots"]
    assert start == measured["queue_s"]
    assert lost is not None
    assert start <= lost <= again
    assert open_end is None, "until its end"
