"""The bound on waiting with every rule at work: boosted order, gathered and ridden launches, costs of a machine."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from laps_sd.scheduler.policies.catalogue import make_policy
from laps_sd.scheduler.policies.laps_sd import LapsSd
from laps_sd.scheduler.prediction import Prediction
from laps_sd.scheduler.service import CostModel
from laps_sd.scheduler.settings import PRESETS, Settings
from laps_sd.scheduler.simulator.engine import simulate
from laps_sd.scheduler.simulator.machine import Machine
from laps_sd.scheduler.simulator.workload import ReplayRequest
from laps_sd.scheduler.state import RequestState
from laps_sd.scheduler.survival import SurvivalCurve

COSTLY = CostModel(step_s=1.0, prefill_s=0.7, prefill_s_per_token=1e-3)

#: Gap to the one before, verify steps, and how far off the prediction is.
Row = tuple[int, int, float]
ROWS = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 80), st.floats(0.2, 5)), min_size=2, max_size=40)


def build(rows: Sequence[Row]) -> list[ReplayRequest]:
    clock, requests = 0.0, []
    for i, (gap, steps, error) in enumerate(rows):
        clock += gap
        curve = SurvivalCurve.lognormal(max(2 * steps * error, 1.0), 0.3)
        requests.append(
            ReplayRequest(
                str(i), clock, 10, 1 + 2 * steps, (2,) * steps, prediction=Prediction(curve, 2.0, 16.0)
            )
        )  # fmt: skip
    return requests


class Watched(LapsSd):
    """Writes down who was admitted when, and who was due and waited at that moment."""

    def __init__(self, settings: Settings, slots: int) -> None:
        super().__init__(settings, COSTLY, slots)
        self.passed_by: list[tuple[RequestState, RequestState]] = []
        self.admitted: list[tuple[int, int, bool]] = []  # round, deadline, due
        self.arrivals: list[tuple[int, RequestState]] = []

    def on_arrival(self, state: RequestState) -> None:
        """See `Policy.on_arrival`."""
        super().on_arrival(state)
        self.arrivals.append((self.now, state))

    def on_admit(self, state: RequestState) -> None:
        """See `Policy.on_admit`."""
        for other in self._waiting.values():
            if other.overdue and not (state.overdue and state.deadline <= other.deadline):
                self.passed_by.append((state, other))
        self.admitted.append((self.now, state.deadline, state.overdue))
        super().on_admit(state)


PATIENT = st.floats(0, 3)


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, slots=st.integers(2, 6), patience=PATIENT, tail=st.sampled_from((0.0, 0.01, 0.5)))
def test_whoever_is_due_is_passed_by_nobody_whatever_rides_or_is_gathered(
    rows: list[Row], slots: int, patience: float, tail: float
) -> None:
    policy = Watched(Settings(patience=patience, patience_floor=1.0, tail=tail), slots)
    simulate(build(rows), policy, Machine(slots, COSTLY))
    assert policy.passed_by == []


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, slots=st.integers(2, 6), patience=PATIENT, tail=st.sampled_from((0.0, 0.01, 0.5)))
def test_all_waits_together_are_bounded_by_patience_and_by_the_work_that_was_there(
    rows: list[Row], slots: int, patience: float, tail: float
) -> None:
    """In rounds: steps and prefills of those that had come by the deadline, however often they were preempted."""
    policy = Watched(Settings(patience=patience, patience_floor=1.0, tail=tail), slots)
    requests = build(rows)
    simulate(requests, policy, Machine(slots, COSTLY))
    prefills = 1 + policy.settings.max_preemptions
    steps = {state.arrival: len(requests[state.arrival].accept_lengths or ()) for _, state in policy.arrivals}
    for now, deadline, due in policy.admitted:
        ahead = sum(steps[s.arrival] + prefills for came, s in policy.arrivals if came <= deadline)
        assert not due or now <= deadline + ahead + 1


FREE_AT_UNIT_COST = ("no-ride", "no-gather", "no-boost", "no-weighing", "tail")


@settings(max_examples=25, deadline=None)
@given(rows=ROWS, slots=st.integers(1, 6), preset=st.sampled_from(FREE_AT_UNIT_COST))
def test_where_launches_are_free_none_of_the_rules_about_launches_acts(
    rows: list[Row], slots: int, preset: str
) -> None:
    assert preset in PRESETS
    machine = Machine(slots)

    def finishes(name: str) -> dict[str, float | None]:
        result = simulate(build(rows), make_policy(name, None, machine.cost, slots), machine)
        return {o.request_id: o.finish_s for o in result.outcomes}

    assert finishes("laps-sd") == finishes(f"laps-sd:{preset}")
