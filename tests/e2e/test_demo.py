"""The demo as a new user runs it."""

import json
import subprocess
import sys

import mlflow
import pytest


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.timeout(1800)
def test_the_demo_runs_the_whole_pipeline_and_stops_its_servers(tmp_path):
    out, figures = tmp_path / "out", tmp_path / "figures.json"
    done = subprocess.run(
        [sys.executable, "-m", "laps_sd", "demo", "--out", str(out), "--json", str(figures)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(figures.read_text())
    assert set(result["policies"]) == {"fcfs", "laps-sd"}
    assert result["identical_tokens"] is True
    assert result["policies"]["laps-sd"]["finished"] == result["workload"]["n"]
    assert result["policies"]["laps-sd"]["accept_length_mean"] > 1
    assert result["evaluation"]["length"]["kendall_tau"] > 0
    assert "Plotly.newPlot" in (out / "report.html").read_text()
    run = mlflow.MlflowClient(result["tracking_uri"]).get_run(result["run_id"])
    assert run.info.status == "FINISHED"
