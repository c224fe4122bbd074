"""When requests are sent."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps_sd.errors import InputError
from laps_sd.serving.bench.arrivals import Arrivals, of_rate, trace_times
from laps_sd.serving.bench.clock import RoundClock


def test_arrivals_are_poisson_and_repeatable() -> None:
    arrivals = of_rate(5.0).at(4000, seed=3)
    assert arrivals == of_rate(5.0).at(4000, seed=3)
    assert arrivals[0] == 0.0
    assert arrivals == sorted(arrivals)
    assert 4000 / arrivals[-1] == pytest.approx(5.0, rel=0.1)
    assert np.std(np.diff(arrivals)) == pytest.approx(0.2, rel=0.1), "as wide as their mean"
    assert of_rate(None).at(3, seed=0) == [0.0, 0.0, 0.0]


@given(load=st.floats(0.1, 2), capacity=st.floats(0.01, 100))
def test_a_load_is_a_share_of_the_capacity(load: float, capacity: float) -> None:
    share = Arrivals("poisson", load=load).at(50, 0, capacity)
    assert share == pytest.approx(Arrivals("poisson", rate=load * capacity).at(50, 0))


def test_bursty_arrivals_have_wider_gaps() -> None:
    gaps = np.diff(Arrivals("poisson", rate=1.0, burstiness=3.0).at(20_000, 0))
    assert np.mean(gaps) == pytest.approx(1.0, rel=0.1)
    assert np.std(gaps) == pytest.approx(3.0, rel=0.1)


def test_a_trace_keeps_its_own_times_from_its_first_request_on() -> None:
    times = trace_times([3.0, 4.5, 9.0])
    assert Arrivals("trace", times=times).at(2, seed=0) == [0.0, 1.5]
    assert trace_times([3.0, None]) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"pattern": "poisson"}, {"pattern": "poisson", "rate": 1.0, "load": 0.5}, {"pattern": "burst", "load": 0.5},
        {"pattern": "poisson", "rate": -1.0}, {"pattern": "trace"}, {"pattern": "closed", "clients": 0},
        {"burstiness": 0.0},
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused(wrong: dict) -> None:
    with pytest.raises(InputError):
        Arrivals(**wrong)


def test_rounds_are_waited_for_and_an_idle_server_is_not(tmp_path: Path) -> None:
    log = tmp_path / "rounds.jsonl"

    def write(*numbers: int) -> None:
        with log.open("a") as file:
            for number in numbers:
                file.write(json.dumps({"round": number}) + "\n")
            file.write('{"rid": "x"}\n')

    async def go() -> None:
        write(1, 2, 3)
        clock = RoundClock(log)
        assert clock.now == 0, "what was before does not count"
        waiting = asyncio.create_task(clock.until(2, lambda: 1))
        write(4)
        await asyncio.sleep(0.02)
        assert not waiting.done()
        write(5)
        await waiting
        assert clock.now == 2
        await clock.until(10, lambda: 0)
        assert clock.now == 10, "nothing runs, so no round would come"
        waiting = asyncio.create_task(clock.until(12, lambda: 1))
        write(6, 7)
        await waiting
        clock.close()

    asyncio.run(go())
