"""The loop closes: record on a live server, train, serve the new bundle, and predictions get better."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from laps_sd.data import RequestRecord, read_records
from laps_sd.data.prompts import generate_prompts
from laps_sd.predictors import fit_bundle
from laps_sd.serving.load import send_load, workload
from laps_sd.serving.process import SglangServer, speculation_args

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(3600)]


def stale_bundle(folder: Path) -> Path:
    """Predictors of somebody else's traffic: every answer has about 900 tokens."""
    records = [
        RequestRecord(
            request_id=f"old{i}", prompt=f"Old question {i}", prompt_tokens=10, output_tokens=850 + i,
            finish_reason="stop", max_new_tokens=2048, draft="NGRAM", max_correct_drafts=7, verify_steps=200,
            correct_drafts_histogram=(0, 100, 100),
        )
        for i in range(100)
    ]  # fmt: skip
    return fit_bundle(records).save(folder)


def mean_length_error(server: SglangServer) -> float:
    """Mean of our own metric, |ln(predicted / real tokens)|."""
    metrics = server.metrics()
    return metrics["laps_sd_length_log_error_sum"] / metrics["laps_sd_length_log_error_count"]


def test_what_was_recorded_makes_better_predictions(
    server_factory: Callable[..., SglangServer], tmp_path: Path, model_folder: Path
) -> None:
    trace, config = tmp_path / "live.jsonl", tmp_path / "laps-sd.yaml"
    config.write_text(yaml.safe_dump({"record": {"path": str(trace), "prompts": "text"}}))

    def serve(bundle: Path, seed: int) -> float:
        server = server_factory(
            [
                *speculation_args("ngram"), "--max-running-requests", "8", "--enable-metrics",
                "--schedule-policy", "laps-sd", "--laps-sd-bundle", str(bundle), "--laps-sd-config", str(config),
            ]
        )  # fmt: skip
        asked = generate_prompts(60, seed)
        requests = workload(asked, None, 192, rate=None, seed=0, cpu=True)
        assert all(answer.error is None for answer in send_load(server.url, requests, timeout_s=3000))
        return mean_length_error(server)

    before = serve(stale_bundle(tmp_path / "stale"), seed=1)
    records = read_records(trace)
    assert len(records) >= 60
    after = serve(fit_bundle(records).save(tmp_path / "fresh"), seed=2)
    assert after < before - math.log(1.2), f"error {before:.2f} before, {after:.2f} after training on {len(records)}"
