"""What a policy costs the server, from the rounds that servers logged."""

import json
from pathlib import Path

import numpy as np
import pytest

from laps_sd.serving.bench.steps import step_ratios
from laps_sd.serving.bench.turn import Turn


def turn(folder: Path, policy: str, step_s: float, cpu_s: float, steps: int = 400) -> Turn:
    """Steps of a full batch of 2 with a queue, between prefills; the noise is the machine's."""
    rng = np.random.default_rng(len(policy))
    at = cpu = 0.0
    lines = []
    for number in range(steps):
        at += step_s * rng.lognormal(0, 0.1)
        cpu += cpu_s
        kind = "prefill" if number % 20 == 0 else "decode"
        line = {"round": number, "at": at, "cpu_s": cpu, "kind": kind, "requests": 2, "waiting": 5, "tokens": 9,
                "after_idle": False}  # fmt: skip
        lines.append(json.dumps(line))
    log = folder / f"{policy}.jsonl"
    log.write_text("\n".join(lines))
    return Turn(policy, 0, [], None, log)


def test_slower_steps_are_seen_by_the_clock_and_by_the_processor(tmp_path: Path) -> None:
    turns = [turn(tmp_path, "fcfs", 0.1, 0.1), turn(tmp_path, "las", 0.12, 0.105)]
    found = step_ratios(turns, ["fcfs", "las"], slots=2)["las"]
    assert found["step_cpu_s"]["ratio"] == pytest.approx(1.05)
    assert found["step_cpu_s"]["high"] - found["step_cpu_s"]["low"] < 1e-6
    assert found["step_s"]["low"] < 1.2 < found["step_s"]["high"]
    assert found["steps_per_s"]["low"] < 1 / 1.2 < found["steps_per_s"]["high"]


def test_what_never_ran_full_is_not_judged(tmp_path: Path) -> None:
    turns = [turn(tmp_path, "fcfs", 0.1, 0.1), turn(tmp_path, "las", 0.1, 0.1, steps=20), Turn("hrrn", 0, [])]
    found = step_ratios(turns, ["fcfs", "las", "hrrn"], slots=2)
    assert found == {"las": None, "hrrn": None}
    assert step_ratios(turns[:1], ["fcfs"], slots=2) == {}
