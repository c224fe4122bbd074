"""The order that is kept from round to round is the one that sorting everything would give."""

import random
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from laps_sd.scheduler import Prediction, RequestState, Settings, SurvivalCurve, new_request
from laps_sd.scheduler.policies.laps_sd import LapsSd
from laps_sd.scheduler.policies.waiting_order import RankedQueue

EVENTS = ("arrive", "arrive", "admit", "step", "preempt", "finish", "abort", "wait long", "shuffle", "many")


@dataclass(eq=False)
class Item:
    """An engine's own object."""

    state: RequestState


def arrive(policy: LapsSd, number: int, rng: random.Random) -> Item:
    prediction = None
    if rng.random() < 0.8:
        prediction = Prediction(SurvivalCurve.lognormal(rng.choice([3, 20, 20, 300]), 0.3), 2.0, 8.0)
    state = new_request(number, 5, settings=policy.settings, prediction=prediction, priority=rng.random() < 0.1)
    policy.on_arrival(state)
    return Item(state)


@given(st.lists(st.sampled_from(EVENTS), max_size=80), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_whatever_happens_the_order_is_that_of_a_full_sort(events: list[str], seed: int) -> None:
    rng = random.Random(seed)
    policy = LapsSd(Settings(patience=2, patience_floor=5))
    waiting: list[Item] = []
    running: list[Item] = []
    number = 0
    for event in events:
        if event in ("arrive", "many"):
            for _ in range(100 if event == "many" else 1):
                waiting.append(arrive(policy, number, rng))
                number += 1
        elif event == "admit" and waiting:
            running.append(waiting.pop(rng.choice([0, rng.randrange(len(waiting))])))
            policy.on_admit(running[-1].state)
        elif event == "step":
            for item in running:
                for _ in range(rng.randrange(40)):
                    policy.on_step(item.state, 1, 3, 2)
        elif event == "preempt" and running:
            waiting.append(running.pop(rng.randrange(len(running))))
            policy.on_preempt(waiting[-1].state)
        elif event == "finish":
            for item in running:
                policy.on_finish(item.state)
            running = []
        elif event == "abort" and waiting:  # the engine drops it, and the policy hears of it now or never
            gone = waiting.pop(rng.randrange(len(waiting)))
            if rng.random() < 0.5:
                policy.on_abort(gone.state)
        elif event == "wait long":
            policy.start_round(rng.randrange(400))
        elif event == "shuffle":
            rng.shuffle(waiting)
        policy.start_round()
        before = set(waiting)
        policy.rank(waiting, lambda item: item.state)
        assert waiting == sorted(waiting, key=lambda item: item.state.key)
        assert set(waiting) == before
        ready = list(policy._victims)
        assert ready == sorted((item.state for item in running), key=lambda s: s.victim_rank, reverse=True)


def test_a_round_in_which_little_happens_looks_at_new_requests_only() -> None:
    queue = RankedQueue()
    items = [Item(new_request(i, 5)) for i in range(1000)]
    for item in items:
        item.state.key = (0, 0, item.state.arrival * 7 % 1000, item.state.arrival)
    waiting = list(items)
    queue.sort(waiting, lambda item: item.state)
    for item in (waiting.pop(0), waiting.pop(500)):
        queue.leave(item.state)
    late = waiting[900]
    late.state.key = (-1, 0, 0.0, late.state.arrival)
    queue.changed(late.state)
    new = Item(new_request(1000, 5))
    new.state.key = (0, 0, 500.5, 1000)
    waiting.append(new)
    asked: list[Item] = []

    def state_of(item: Item) -> RequestState:
        asked.append(item)
        return item.state

    queue.sort(waiting, state_of)
    assert asked == [new]
    assert waiting[0] is late
    assert waiting == sorted(waiting, key=lambda item: item.state.key)


@given(st.integers(1, 600), st.data())
@settings(max_examples=60, deadline=None)
def test_those_that_the_engine_dropped_are_found_without_looking_at_the_others(count: int, data: st.DataObject) -> None:
    queue = RankedQueue()
    items = [Item(new_request(i, 5)) for i in range(count)]
    for item in items:
        item.state.key = (0, 0, item.state.arrival * 7919 % count, item.state.arrival)
    waiting = list(items)
    assert queue.sort(waiting, lambda item: item.state) == []
    places = data.draw(st.sets(st.integers(0, count - 1), max_size=20))
    dropped = [waiting[i] for i in sorted(places)]
    waiting = [item for i, item in enumerate(waiting) if i not in places]
    new = [Item(new_request(count + i, 5)) for i in range(data.draw(st.integers(0, 20)))]
    for item in new:
        item.state.key = (0, 0, data.draw(st.floats(-1, count)), item.state.arrival)
    if data.draw(st.booleans()):  # an engine that also puts in another order what it keeps
        random.Random(count).shuffle(waiting)
        everything = sorted([*waiting, *new], key=lambda item: item.state.key)
        waiting += new
        found = queue.sort(waiting, lambda item: item.state)
        assert sorted(state.arrival for state in found) == sorted(item.state.arrival for item in dropped)
        assert waiting == everything
        return
    moved = data.draw(st.booleans()) and len(waiting) > 1  # alone it would stay where it was
    tail = [*new, waiting.pop(0)] if moved else new
    expected = sorted(waiting + tail, key=lambda item: item.state.key)
    waiting += tail
    asked: list[Item] = []

    def state_of(item: Item) -> RequestState:
        asked.append(item)
        return item.state

    found = queue.sort(waiting, state_of)
    assert sorted(state.arrival for state in found) == sorted(item.state.arrival for item in dropped)
    assert waiting == expected
    if len(dropped) + len(tail) <= 32:
        assert asked == tail
