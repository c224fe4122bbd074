"""The page of a live comparison says everything that was found, and nothing that was not."""

from typing import Any

import pytest

from laps_sd.report.bench import bench_report, pace_of
from laps_sd.report.comparison import ratio_rows, simulated_rows, step_rows

RATIO = {"ratio": 0.81234, "low": 0.7, "high": 0.9}
SPREAD = {"mean": 2.0, "p50": 2.0, "p90": 3.0, "p99": 4.0}
WORKLOAD: dict[str, Any] = {
    "n": 3, "slots": 2, "arrivals": "poisson", "rate": 0.0123, "clock": "rounds", "load": 0.9, "burstiness": 1.0,
    "clients": None, "max_new_tokens": 8, "rounds": 1, "cpu": True,
}  # fmt: skip
LIFE = {"arrival": 1, "first_token": 3, "end": 9, "spans": [[2, 9]]}


def result(**changes: Any) -> dict[str, Any]:
    figures = {"latency_s": SPREAD, "ttft_s": SPREAD, "latency_rounds": SPREAD, "failed": 0}
    compared = {"latency_rounds": {"mean": RATIO, "p50": RATIO, "p99": RATIO}, "latency_s": None}
    return {
        "workload": WORKLOAD,
        "policies": {"fcfs": figures, "las": figures},
        "ratios": {"fcfs": {"las": compared}, "las": {"fcfs": compared}},
        "steps": {"las": {"step_s": RATIO, "step_cpu_s": RATIO, "steps_per_s": None}},
        "simulated": {
            "cost": {},
            "figures": [{"policy": "las", "unit": "rounds", "statistic": "p99", "measured": 40.0, "simulated": 38.0,
                         "error": -0.05}],
            "ratios": [{"policy": "las / fcfs", "unit": "rounds", "statistic": "mean", "measured": 0.8,
                        "simulated": 0.81, "error": 0.0125}],
        },
        "identical_tokens": True,
        **changes,
    }  # fmt: skip


def test_the_page_holds_every_part() -> None:
    row = {"policy": "las", "round": 0, "arrival_s": 0.0, "finish_s": 1.0, "laps_sd": {"rounds": LIFE}}
    html = bench_report(result(), [row], {"las": [(1, 0), (2, 1)]}).render()
    for text in ("0.812 (0.700–0.900)", "The simulator against reality", "-5.0%", "+1.2%", "Who ran when",
                 "Poisson arrivals, 0.0123 per round of the scheduler, 0.9 of the measured capacity"):  # fmt: skip
        assert text in html, text


def test_what_was_not_measured_is_not_there() -> None:
    bare = result(simulated=None, steps={"las": None}, identical_tokens=None)
    html = bench_report(bare).render()
    assert "simulator" not in html
    assert "Who ran when" not in html
    assert step_rows(bare)[1] == []


def test_the_last_policy_is_told_over_every_other() -> None:
    compared = {"latency_rounds": {"mean": RATIO, "p50": RATIO, "p99": RATIO}, "latency_s": None}
    names = ["fcfs", "hrrn", "laps-sd"]
    _, rows = ratio_rows({a: {b: compared for b in names if b != a} for a in names})
    assert [row[0] for row in rows] == ["hrrn / fcfs", "laps-sd / fcfs", "laps-sd / hrrn"]


def test_numbers_of_the_simulator_stand_beside_those_measured() -> None:
    headers, rows = simulated_rows(result()["simulated"])
    assert len(headers) == len(rows[0]) == 6
    assert rows[1] == ["las", "rounds", "p99", "40", "38", "-5.0%"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"arrivals": "burst", "rate": None}, "all at once"),
        ({"arrivals": "closed", "clients": 4}, "a closed loop of 4 clients"),
        ({"arrivals": "trace", "rate": None}, "at the times of the trace"),
        (
            {"clock": "seconds", "load": None, "burstiness": 3.0, "rate": 2.0},
            "bursty (CV 3) arrivals, 2 per second",
        ),
    ],
)
def test_the_load_is_told_in_words(changes: dict[str, Any], words: str) -> None:
    assert pace_of({**WORKLOAD, **changes}) == words
