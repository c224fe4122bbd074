"""The loop closes: record on a live server, train, promote by an alias, restart, and predictions get better."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from laps_sd.data import RequestRecord, read_records
from laps_sd.data.prompts import generate_prompts
from laps_sd.serving.bench.load import send_load, workload
from laps_sd.serving.process.server import SglangServer
from laps_sd.serving.process.speculation import speculation_args
from laps_sd.training import train

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(3600)]


def somebody_elses() -> list[RequestRecord]:
    """Requests of other traffic: every answer has about 900 tokens."""
    return [
        RequestRecord(
            request_id=f"old{i}", prompt=f"Old question {i}", prompt_tokens=10, output_tokens=850 + i,
            finish_reason="stop", max_new_tokens=2048, draft="NGRAM", max_correct_drafts=7, verify_steps=200,
            correct_drafts_histogram=(0, 100, 100), group=str(i),
        )
        for i in range(100)
    ]  # fmt: skip


def mean_length_error(server: SglangServer) -> float:
    """Mean of our own metric, |ln(predicted / real tokens)|."""
    metrics = server.metrics()
    return metrics["laps_sd_length_log_error_sum"] / metrics["laps_sd_length_log_error_count"]


def test_what_was_recorded_makes_better_predictions(
    tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, config = tmp_path / "live.jsonl", tmp_path / "laps-sd.yaml"
    config.write_text(yaml.safe_dump({"record": {"path": str(trace), "prompts": "text"}}))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")

    def promote(data: Sequence[RequestRecord] | Sequence[Path], name: str) -> None:
        assert train(data, tmp_path / name, register="loop", promote=True).registered == "models:/loop@champion"

    def error_of_champion(seed: int) -> float:
        args = [
            *speculation_args("ngram"), "--max-running-requests", "8", "--enable-metrics",
            "--schedule-policy", "laps-sd", "--laps-sd-bundle", "models:/loop@champion",
            "--laps-sd-config", str(config),
        ]  # fmt: skip
        with SglangServer(args, cpu=True, model=model_folder, log=tmp_path / f"server-{seed}.log") as server:
            server.wait_ready(900)
            requests = workload(generate_prompts(60, seed), None, 192, cpu=True)
            assert all(answer.error is None for answer in send_load(server.url, requests, timeout_s=3000))
            return mean_length_error(server)

    promote(somebody_elses(), "stale")
    before = error_of_champion(seed=1)
    recorded = len(read_records(trace))
    assert recorded >= 60
    promote([trace], "fresh")
    after = error_of_champion(seed=2)
    assert after < before - math.log(1.2), f"error {before:.2f} before, {after:.2f} after training on {recorded}"
