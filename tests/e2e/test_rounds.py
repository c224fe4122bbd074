"""Rounds on real servers: counted alike under SGLang's policies and ours, and the simulator says the same."""

from pathlib import Path

import pytest

from laps_sd.data import builtin_trace
from laps_sd.data.prompts import generate_prompts
from laps_sd.predictors import fit_bundle
from laps_sd.serving.bench.run import run_bench
from laps_sd.serving.cpu.model import draft_model

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]


def test_what_is_measured_is_what_is_simulated(tmp_path: Path) -> None:
    result = run_bench(
        policies=["fcfs", "hrrn", "laps-sd"],
        prompts=generate_prompts(16, seed=3),
        bundle=fit_bundle(list(builtin_trace("ngram"))[:300]).save(tmp_path / "bundle"),
        out_dir=tmp_path / "out",
        max_new_tokens=12,
        model=draft_model(8),
        max_running=2,
    )
    assert result["identical_tokens"] is True
    for figures in result["policies"].values():
        assert figures["finished"] == 16
        assert figures["queue_rounds"]["mean"] <= figures["ttft_rounds"]["mean"] <= figures["latency_rounds"]["mean"]
    rows = result["simulated"]["figures"]
    errors = {row["policy"]: row["error"] for row in rows if (row["unit"], row["statistic"]) == ("rounds", "mean")}
    assert errors.keys() == {"fcfs", "hrrn", "laps-sd"}
    assert abs(errors["fcfs"]) < 0.02, errors
    # Probably for what a prefill costs: the server learns it, the simulated policy knows it (docs/simulator.md).
    assert abs(errors["laps-sd"]) < 0.1, errors
