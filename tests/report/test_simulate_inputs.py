"""What ``laps-sd simulate`` refuses before it replays: numbers beyond all bounds, and results in place of inputs."""

import json
from pathlib import Path

import pytest

from laps_sd.cli import run
from laps_sd.data import RequestRecord, write_records
from laps_sd.scheduler.prediction import Prediction
from laps_sd.scheduler.survival import SurvivalCurve


def record(i: int) -> RequestRecord:
    return RequestRecord(request_id=f"r{i}", prompt_tokens=20 + i, output_tokens=10 + i, finish_reason="stop")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    write_records(path, [record(i) for i in range(40)])
    return path


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--burstiness", "1e-200"), "expected a number from 0 to"),
        (("--slots", str(10**400)), "--slots"),
        (("--chunk-tokens", str(10**400)), "--chunk-tokens"),
        (("--requests", str(10**12)), "--requests"),
        (("--seeds", str(10**12)), "--seeds"),
    ],
)
def test_a_number_beyond_all_bounds_is_refused(
    options: tuple[str, ...], complaint: str, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", "--trace", str(trace), "--workers", "1", "--predictions", "none", *options]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("corrupt", ["", "shuffled:", "reversed:"])
def test_predictions_survive_being_named_for_the_results(trace: Path, tmp_path: Path, corrupt: str) -> None:
    path = tmp_path / "predictions.jsonl"
    wire = Prediction(SurvivalCurve.lognormal(60, 0.5), 2.0, 8.0).to_wire()
    rows = [json.dumps({"request_id": f"r{i}", "prediction": wire}) + "\n" for i in range(40)]
    path.write_text("".join(rows), encoding="utf-8")
    options = ["--workers", "1", "--policies", "fcfs", "--predictions", f"{corrupt}{path}", "--json", str(path)]
    assert run(["simulate", "--trace", str(trace), *options]) == 2
    assert path.read_text(encoding="utf-8") == "".join(rows)
