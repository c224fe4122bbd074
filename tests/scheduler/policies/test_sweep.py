"""After a review of the statistics all waiting requests are placed anew, a few in every round."""

from hypothesis import given, settings
from hypothesis import strategies as st

from laps_sd.scheduler import Prediction, RequestState, Settings, SurvivalCurve, new_request
from laps_sd.scheduler.policies.laps_sd import LapsSd
from laps_sd.scheduler.policies.sweep import Sweep


def request(number: int, *, predicted: bool = True) -> RequestState:
    return new_request(number, 5, prediction=Prediction(SurvivalCurve.lognormal(50, 0.5)) if predicted else None)


def waiting(sweep: Sweep, states: dict[int, RequestState], count: int, **more: bool) -> None:
    for number in range(count):
        states[number] = request(number, **more)
        sweep.add(states[number])


def test_nothing_is_outdated_before_a_review() -> None:
    states: dict[int, RequestState] = {}
    sweep = Sweep()
    waiting(sweep, states, 5)
    assert list(sweep.take(5)) == []


def test_each_is_taken_once_the_one_placed_longest_ago_first() -> None:
    states: dict[int, RequestState] = {}
    sweep = Sweep()
    waiting(sweep, states, 7)
    sweep.begin(everybody=True)
    assert [s.arrival for s in sweep.take(3)] == [0, 1, 2]
    sweep.begin(everybody=True)  # the next review comes before the sweep is over
    assert [s.arrival for s in sweep.take(5)] == [3, 4, 5, 6, 0]
    assert [s.arrival for s in sweep.take(9)] == [1, 2]
    assert list(sweep.take(9)) == []


def test_only_those_without_a_prediction_when_trust_in_predictions_has_not_changed() -> None:
    states: dict[int, RequestState] = {}
    sweep = Sweep()
    for number in range(6):
        states[number] = request(number, predicted=number % 2 == 0)
        sweep.add(states[number])
    sweep.begin(everybody=False)
    assert [s.arrival for s in sweep.take(6)] == [1, 3, 5]


@given(st.lists(st.integers(0, 9), max_size=300))
@settings(max_examples=50, deadline=None)
def test_requests_that_left_are_forgotten_and_none_that_waits_is(numbers: list[int]) -> None:
    states: dict[int, RequestState] = {}
    sweep = Sweep()
    for number in numbers:
        if number in states:
            sweep.leave(states.pop(number))
        else:
            states[number] = request(number)
            sweep.add(states[number])
        assert len(sweep) == len(states)
    sweep.begin(everybody=True)
    assert {s.arrival for s in sweep.take(10_000)} == set(states)


def test_a_review_costs_no_more_than_the_pace_in_any_round(monkeypatch) -> None:
    policy = LapsSd(Settings(places_per_round=5))
    placed: list[int] = []
    place = policy.place

    def counted(state: RequestState) -> None:
        placed.append(state.arrival)
        place(state)

    for number in range(200):
        policy.on_arrival(new_request(number, 5, settings=policy.settings))
    for number in range(200, 216):  # as many as bring about the first review
        state = new_request(number, 5, settings=policy.settings)
        policy.on_arrival(state)
        policy.on_admit(state)
        policy.on_step(state, 0, 0, 1)
        monkeypatch.setattr(policy, "place", counted)
        policy.on_finish(state)
        monkeypatch.setattr(policy, "place", place)
    assert policy.population.experienced
    assert placed == [], "the finish itself places nobody"
    monkeypatch.setattr(policy, "place", counted)
    for number in range(40):
        policy.start_round()
        assert len(placed) == 5 * (number + 1)
    assert placed == list(range(200))
    policy.start_round()
    assert len(placed) == 200


def test_a_review_of_the_unpredicted_does_not_make_a_sweep_of_everybody_begin_again() -> None:
    states: dict[int, RequestState] = {}
    sweep = Sweep()
    waiting(sweep, states, 6)
    sweep.begin(everybody=True)
    placed = []
    for _ in range(10):
        placed += [state.arrival for state in sweep.take(2)]
        sweep.begin(everybody=False)
    assert placed == list(range(6))
