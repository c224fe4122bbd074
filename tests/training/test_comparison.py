"""A live comparison in MLflow."""

from pathlib import Path

import mlflow
import pytest

from laps_sd.errors import WorkError
from laps_sd.training.comparison import log_comparison

RESULT = {
    "workload": {"n": 4, "slots": 2, "load": None, "capacity": {"per_round": 0.1}},
    "policies": {"fcfs": {"latency_s": {"mean": 2.0}, "gap_closed": None}, "laps-sd:paper": {"finished": 4}},
    "ratios": {"laps-sd:paper": {"fcfs": {"latency_s": {"mean": {"ratio": 0.8, "low": 0.7, "high": 0.9}}}}},
    "steps": {"laps-sd:paper": None},
    "simulated": {
        "ratios": [{"policy": "las / fcfs", "unit": "rounds", "statistic": "mean", "error": 0.02}], "figures": [],
    },
    "identical_tokens": True,
}  # fmt: skip


def test_figures_workload_and_files_are_in_the_run(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    file = tmp_path / "requests.jsonl"
    file.write_text("{}\n")
    run_id = log_comparison(RESULT, [file], "served", store)
    client = mlflow.MlflowClient(store)
    run = client.get_run(run_id)
    assert run.data.params["n"] == "4"
    assert run.data.params["policies"] == "fcfs,laps-sd:paper"
    assert run.data.metrics["policies.fcfs.latency_s.mean"] == 2.0
    assert run.data.metrics["ratios.laps-sd:paper.fcfs.latency_s.mean.low"] == 0.7
    assert run.data.metrics["simulated.error.las / fcfs.rounds.mean"] == 0.02
    assert run.data.tags["laps_sd.identical_tokens"] == "True"
    assert [artifact.path for artifact in client.list_artifacts(run_id)] == ["requests.jsonl"]
    assert run.info.status == "FINISHED"


def test_a_store_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match="cannot be reached"):
        log_comparison(RESULT, [], "served", "http://127.0.0.1:9")
