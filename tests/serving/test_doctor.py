"""`laps-sd doctor`: would a server start here, and if not, what to do."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from laps_sd.cli import app
from laps_sd.serving import doctor


def by_name(checks: list[doctor.Check]) -> dict[str, doctor.Check]:
    return {check.name: check for check in checks}


def test_a_good_environment_is_ok(sglang: ModuleType, tmp_path: Path) -> None:
    out = tmp_path / "doctor.json"
    result = CliRunner().invoke(app, ["doctor", "--json", str(out)], standalone_mode=False)
    assert result.return_value == 0, result.output
    report = json.loads(out.read_text())
    assert report["ok"] is True
    assert {"versions", "sglang", "plugin", "kill switch", "hook targets"} <= {c["name"] for c in report["checks"]}
    assert all(set(c) == {"name", "ok", "detail", "fix"} for c in report["checks"])


def test_what_would_refuse_to_start_is_said(sglang: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("nope: 1")
    checks = by_name(
        doctor.examine(
            bundle=str(tmp_path / "no-bundle"),
            config=tmp_path / "c.yaml",
            args=["--model-path", "m", "--schedule-policy", "laps-sd", "--pp-size", "2"],
            url="http://127.0.0.1:9",
        )
    )
    assert not checks["launch arguments"].ok
    assert "--pp-size" in checks["launch arguments"].detail
    for name in ("bundle", "configuration", "server"):
        assert not checks[name].ok
        assert checks[name].fix
    assert doctor.as_json(list(checks.values()))["ok"] is False


def test_what_is_not_ok_ends_with_1_and_the_same_keys(sglang: ModuleType, tmp_path: Path) -> None:
    out = tmp_path / "doctor.json"
    asked = ["doctor", "--url", "http://127.0.0.1:99999", "--config", "nowhere.yaml", "--json", str(out)]
    assert CliRunner().invoke(app, asked, standalone_mode=False).return_value == 1
    report = json.loads(out.read_text())
    assert set(report) == {"ok", "checks"}
    assert report["ok"] is False
    assert all(set(c) == {"name", "ok", "detail", "fix"} for c in report["checks"])
    wrong = {c["name"]: c for c in report["checks"] if not c["ok"]}
    assert set(wrong) == {"server", "configuration"}
    assert "is no address of a server" in wrong["server"]["detail"]


def test_a_running_server_is_asked_for_its_policy(sglang: ModuleType, fake_sglang: Any) -> None:
    look = by_name(doctor.examine(url=fake_sglang.url))["server"]
    assert not look.ok
    assert look.detail == f"{fake_sglang.url} schedules with hrrn"
    fake_sglang.info["schedule_policy"] = "laps-sd"
    assert by_name(doctor.examine(url=fake_sglang.url))["server"].ok
    told = {"policy": "las", "bundle": "models:/m@champion", "version": "3", "run": "abc", "sglang": "0.5.23"}
    fake_sglang.info["internal_states"] = [{"laps_sd": told}]
    assert by_name(doctor.examine(url=fake_sglang.url))["server"].detail == (
        f"{fake_sglang.url} schedules with las, ranked by laps-sd; with bundle models:/m@champion "
        "(version 3, run abc), SGLang 0.5.23"
    )
    fake_sglang.info = ["something else"]
    assert "is no SGLang server" in by_name(doctor.examine(url=fake_sglang.url))["server"].detail


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--schedule-policy", "laps-sd"], "needs --laps-sd-bundle"),
        (["--laps-sd-bundle", "bundle"], "without --schedule-policy laps-sd"),
        (["--schedule-policy", "laps-sd", "--laps-sd-config", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_flags_that_the_server_would_refuse_are_said(sglang: ModuleType, arguments: list[str], says: str) -> None:
    checks = by_name(doctor.examine(args=["--model-path", "m", *arguments]))
    assert not checks["launch arguments"].ok
    assert says in checks["launch arguments"].detail


def test_arguments_that_sglang_does_not_know_are_said(sglang: ModuleType) -> None:
    checks = by_name(doctor.examine(args=["--model-path", "m", "--schedule-policy", "shortest"]))
    assert not checks["launch arguments"].ok
    assert "shortest" in checks["launch arguments"].detail


def test_a_switched_off_or_left_out_plugin_is_said(sglang: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAPS_SD_DISABLE", "1")
    monkeypatch.setenv("SGLANG_PLUGINS", "something_else")
    checks = by_name(doctor.examine())
    assert not checks["kill switch"].ok
    assert not checks["plugin"].ok
    assert "SGLANG_PLUGINS" in checks["plugin"].detail


def test_changed_targets_are_listed(sglang: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang.srt.managers.scheduler import Scheduler

    monkeypatch.delattr(Scheduler, "_abort_on_queued_limit")
    checks = by_name(doctor.examine())
    assert not checks["hook targets"].ok
    assert "_abort_on_queued_limit" in checks["hook targets"].detail
