"""Running requests are kept in the order in which they give way."""

from laps_sd.scheduler import new_request
from laps_sd.scheduler.policies.running_order import VictimOrder


def test_the_most_ready_to_give_way_come_first() -> None:
    order = VictimOrder()
    states = [new_request(i, 5) for i in range(6)]
    for state, gain in zip(states, (3.0, 9.0, 1.0, 9.0, 5.0, 7.0), strict=True):
        state.victim_rank = (0.0, 0.0, state.arrival)
        order.put(state)
        state.victim_rank = (0.0, gain, state.arrival)
        order.put(state)
    order.leave(states[5])
    assert [state.arrival for state in order] == [3, 1, 4, 0, 2]
