"""The simulator decides as SGLang's own loop does: the same requests end in the same rounds under every policy."""

import random
from pathlib import Path
from typing import Any

import pytest

from laps_sd.scheduler import CostModel
from laps_sd.serving.bench.load import LoadResult
from laps_sd.serving.bench.round_log import read_rounds
from laps_sd.serving.bench.simulated import simulate_turn

#: What both charge for a prefill; the policy's decisions hang on it.
COST = CostModel(step_s=1.0, prefill_s=1.0)


def served(it: Any, rng: random.Random, count: int) -> dict[str, int]:
    """Send requests in random rounds until all are answered; the limit of each."""
    limits = {}
    for i in range(count):
        tokens = rng.choice([2, 5, 12, 30, 60])
        limits[f"r{i}"] = rng.choice([tokens, 80])
        it.submit(f"r{i}", prompt=rng.randint(4, 30), tokens=tokens, limit=limits[f"r{i}"])
        for _ in range(rng.randint(0, 12)):
            it.round()
    it.run()
    return limits


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("name", ["fcfs", "sjf-predicted", "las", "laps-sd", "laps-sd:paper"])
def test_rounds_of_the_simulator_are_those_of_sglangs_loop(
    engine: Any, counting: Any, tmp_path: Path, name: str, slots: int
) -> None:
    it = engine(config={"policy": {"name": name}}, cost=COST, slots=slots, kv_tokens=4000)
    counting(it)
    limits = served(it, random.Random(f"{name} {slots}"), 30)
    results = [
        LoadResult(
            req.rid, req.fields["rounds"]["arrival"], 0.0, 1.0, [],
            {"id": req.rid, "prompt_tokens": len(req.origin_input_ids), "completion_tokens": len(req.output_ids),
             "cached_tokens": 0, "laps_sd": req.fields},
            max_new_tokens=limits[req.rid],
        )
        for req in sorted(it.finished, key=lambda req: req.laps_sd.arrival)
    ]  # fmt: skip
    found = simulate_turn(name, results, read_rounds(tmp_path / "rounds.jsonl"), COST, slots, 8192)["rounds"]
    simulated = {outcome.request_id: outcome.finish_s for outcome in found}
    measured = {result.request_id: result.rounds["end"] for result in results if result.rounds}
    mean = sum(measured[r.request_id] - r.arrival_s for r in results) / len(results)
    theirs = sum(o.latency_s or 0 for o in found) / len(found)
    assert theirs == pytest.approx(mean, rel=0.02)
    if name == "fcfs":
        assert simulated == measured
