"""Who gives way to whom: see also `test_laps_sd.py`, where it is seen from outside."""

from laps_sd.scheduler import Prediction, SurvivalCurve, new_request
from laps_sd.scheduler.policies.laps_sd import LapsSd


def test_a_running_request_that_may_not_be_taken_is_passed_over() -> None:
    policy = LapsSd()
    for number, length in enumerate((3000, 2000, 10)):
        prediction = Prediction(SurvivalCurve.lognormal(length, 0.3), 2.0, 8.0)
        policy.on_arrival(new_request(number, 5, settings=policy.settings, prediction=prediction))
    longest, long, short = policy._waiting.values()
    for state in (longest, long):
        policy.on_admit(state)
    assert policy.victim(short, [long]) is long
    assert policy.victim(short, []) is None
