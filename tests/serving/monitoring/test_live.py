"""`laps-sd top`: what a running server tells of itself."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from laps_sd.cli import app, run
from laps_sd.serving.monitoring.live import look

METRICS = """
laps_sd_active{policy="laps-sd"} 1.0
laps_sd_requests{level="12",phase="waiting"} 3.0
laps_sd_requests{level="2",phase="waiting"} 1.0
laps_sd_requests{level="2",phase="running"} 2.0
laps_sd_backlog_tokens{phase="waiting"} 4000.0
laps_sd_backlog_steps{phase="waiting"} 2000.0
laps_sd_backlog_seconds{phase="waiting"} NaN
laps_sd_backlog_tokens{phase="running"} 100.0
laps_sd_backlog_steps{phase="running"} 50.0
laps_sd_order_gain_steps 37.5
laps_sd_order_gain_seconds NaN
laps_sd_prediction_trust 0.75
laps_sd_perceptible_share NaN
laps_sd_preemptions_total{reason="slots"} 4.0
laps_sd_preemptions_total{reason="kv"} 1.0
laps_sd_recomputed_tokens_total 7.0
laps_sd_length_log_error_sum 5.0
laps_sd_length_log_error_count 10.0
laps_sd_unpredicted_requests_total{reason="slow"} 2.0
sglang:num_queue_reqs 4.0
"""
SERVED = {"policy": "laps-sd", "bundle": "models:/m@champion", "version": "3", "run": "abc", "sglang": "0.5.23"}


@pytest.fixture
def server(fake_sglang: Any) -> Any:
    fake_sglang.info["schedule_policy"] = "laps-sd"
    fake_sglang.info["internal_states"] = [{"laps_sd": dict(SERVED)}]
    fake_sglang.metrics = [METRICS]
    return fake_sglang


def test_what_the_server_says_is_gathered_and_what_it_does_not_know_is_null(server: Any) -> None:
    now: Any = look(server.url + "/")
    assert json.loads(json.dumps(now, allow_nan=False)) == now
    assert (now["served"], now["active"], now["failed_hook"]) == (SERVED, True, None)
    assert (now["waiting"], now["running"]) == (4, 2)
    assert list(now["levels"]["waiting"].items()) == [("2", 1), ("12", 3)], "the highest level first"
    assert now["backlog"]["waiting"] == {"tokens": 4000, "steps": 2000, "seconds": None}
    assert now["order_gain"] == {"steps": 37.5, "seconds": None}
    assert now["preemptions"] == {"slots": 4, "kv": 1}
    assert now["length_log_error"] == 0.5
    assert now["accept_length_relative_error"] is None
    assert (now["trust"], now["perceptible_share"]) == (0.75, None)


def test_one_look_for_scripts_and_for_people(server: Any) -> None:
    result = CliRunner().invoke(app, ["top", server.url, "--once", "--json"], standalone_mode=False)
    assert json.loads(result.stdout) == look(server.url)
    shown = CliRunner().invoke(app, ["top", server.url, "--once"], standalone_mode=False).stdout
    for text in ("models:/m@champion version 3", "waiting 4, running 2", "4,000 tokens", "37.5 steps", "4 (slots)"):
        assert text in " ".join(shown.split())


def test_a_server_that_fell_back_says_so(server: Any) -> None:
    server.info["internal_states"] = [{"laps_sd": {**SERVED, "policy": "fcfs", "failed_hook": "calc_priority"}}]
    server.metrics = [METRICS.replace('policy="laps-sd"} 1.0', 'policy="laps-sd"} 0.0')]
    shown = CliRunner().invoke(app, ["top", server.url, "--once"], standalone_mode=False).stdout
    assert "NOT ACTIVE: the hook calc_priority failed" in shown


def test_a_server_that_goes_away_ends_the_view_with_one_sentence(
    server: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def another_server_takes_the_port(_seconds: float) -> None:
        server.info = ["something else"]

    monkeypatch.setattr("laps_sd.commands.top.time.sleep", another_server_takes_the_port)
    assert run(["top", server.url, "--json"]) == 1
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 1
    assert "is no SGLang server" in said.err


@pytest.mark.parametrize(
    ("url", "code", "says"),
    [("nowhere", 2, "is no address of a server"), ("http://127.0.0.1:9", 1, "no server answers")],
)
def test_where_no_server_is_one_sentence_says_so(
    url: str, code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["top", url, "--once"]) == code
    assert says in capsys.readouterr().err


def test_a_server_without_laps_sd_or_without_metrics_is_refused(
    server: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    server.metrics = ["sglang:num_queue_reqs 4.0"]
    assert run(["top", server.url, "--once"]) == 2
    assert "--enable-metrics" in capsys.readouterr().err
    server.info["internal_states"] = [{}]
    server.info["schedule_policy"] = "hrrn"
    assert run(["top", server.url, "--once"]) == 2
    assert "schedules with hrrn, without laps-sd" in capsys.readouterr().err
