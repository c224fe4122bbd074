"""What cannot work refuses to start: SGLang's own parser, our hook, one sentence, a status that is not 0."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest

from laps_sd.serving import plugin
from laps_sd.serving.flags import ACTIVE_ENV, DISABLE_ENV, flags_alone
from laps_sd.serving.preflight import RUNS_WITH, refusal, runs_with_table

Parse = Callable[..., Namespace]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (ACTIVE_ENV, DISABLE_ENV, "SGLANG_RUST_SERVER"):
        monkeypatch.setenv(name, "")  # so that it is restored whatever the test does to it
        monkeypatch.delenv(name)


def start(args: Namespace, capfd: pytest.CaptureFixture[str]) -> str:
    """Run our hook on parsed arguments; the sentence with which it refused."""
    with pytest.raises(SystemExit) as caught:
        plugin.from_cli_args(lambda cls, args: pytest.fail("SGLang would have gone on"), object, args)
    assert caught.value.code not in (0, None)
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("laps-sd: ")]
    assert len(lines) == 1
    return lines[0]


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (["--enable-priority-scheduling"], "--enable-priority-scheduling"),
        (["--retraction-policy", "priority"], "--retraction-policy priority"),
        (["--abort-on-priority-when-disabled"], "--abort-on-priority-when-disabled"),
        (["--tokenizer-worker-num", "2"], "--tokenizer-worker-num"),
        (["--skip-tokenizer-init"], "--skip-tokenizer-init"),
        (["--disaggregation-mode", "prefill"], "--disaggregation-mode"),
        (["--disaggregation-mode", "decode"], "--disaggregation-mode"),
        (["--pp-size", "2"], "--pp-size"),
        (["--dllm-algorithm", "LowConfidence"], "--dllm-algorithm"),
        (["--is-embedding"], "--is-embedding"),
        (["--speculative-algorithm", "UNO"], "--speculative-algorithm UNO"),
        (["--encoder-only"], "--encoder-only"),
        (["--use-ray"], "--use-ray"),
        (["--smg-grpc-mode"], "--smg-grpc-mode"),
    ],
)
def test_options_that_would_go_on_without_us_are_refused(
    parse: Parse, capfd: pytest.CaptureFixture[str], flags: list[str], names: str
) -> None:
    sentence = start(parse("--schedule-policy", "laps-sd", "--laps-sd-bundle", "x", *flags), capfd)
    assert names in sentence
    assert "; " in sentence, "it says what to do"


def test_the_rust_server_is_refused(
    parse: Parse, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGLANG_RUST_SERVER", "1")
    assert "SGLANG_RUST_SERVER" in start(parse("--schedule-policy", "laps-sd", "--laps-sd-bundle", "x"), capfd)


def test_a_plain_launch_is_not_refused(parse: Parse) -> None:
    assert refusal(parse("--schedule-policy", "laps-sd", "--tp-size", "2", "--dp-size", "2")) is None


def test_the_flag_needs_a_bundle(parse: Parse, capfd: pytest.CaptureFixture[str]) -> None:
    sentence = start(parse("--schedule-policy", "laps-sd"), capfd)
    assert "--laps-sd-bundle" in sentence
    assert "unpredicted: true" in sentence


def test_a_missing_or_damaged_bundle_is_refused(
    parse: Parse, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    missing = start(parse("--schedule-policy", "laps-sd", "--laps-sd-bundle", str(tmp_path / "none")), capfd)
    assert "none" in missing
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "manifest.json").write_text("{")
    damaged = start(parse("--schedule-policy", "laps-sd", "--laps-sd-bundle", str(tmp_path / "damaged")), capfd)
    assert "damaged" in damaged


def test_a_configuration_with_an_unknown_key_is_refused(
    parse: Parse, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("unpredicted: true\npolcy: {}\n")
    sentence = start(parse("--schedule-policy", "laps-sd", "--laps-sd-config", str(config)), capfd)
    assert "polcy: unknown key" in sentence


def test_a_changed_sglang_is_refused(
    parse: Parse, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sglang.srt.managers.schedule_batch import ScheduleBatch

    config = tmp_path / "c.yaml"
    config.write_text("unpredicted: true\n")
    monkeypatch.setattr(ScheduleBatch, "_get_decode_retraction_order", staticmethod(lambda requests: []))
    sentence = start(parse("--schedule-policy", "laps-sd", "--laps-sd-config", str(config)), capfd)
    assert "_get_decode_retraction_order" in sentence


def test_our_flags_without_the_policy_are_refused(parse: Parse, capfd: pytest.CaptureFixture[str]) -> None:
    assert "without --schedule-policy laps-sd" in start(parse("--laps-sd-bundle", "x"), capfd)
    assert flags_alone(parse("--schedule-policy", "laps-sd", "--laps-sd-bundle", "x")) is None
    assert flags_alone(parse()) is None


def test_the_kill_switch_serves_fcfs_and_needs_nothing(
    parse: Parse, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    monkeypatch.setenv(DISABLE_ENV, "1")
    args = parse("--schedule-policy", "laps-sd", "--laps-sd-bundle", "no-such-folder", "--pp-size", "2")
    result = plugin.from_cli_args(lambda cls, args: args, object, args)
    assert result.schedule_policy == "fcfs"
    assert ACTIVE_ENV not in os.environ
    assert "scheduling with fcfs" in capfd.readouterr().err


def test_another_policy_leaves_no_trace(parse: Parse, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv(ACTIVE_ENV, "left over from the server that started this one")
    assert plugin.from_cli_args(lambda cls, args: args.schedule_policy, object, parse()) == "fcfs"
    assert ACTIVE_ENV not in os.environ


def test_the_table_in_the_docs_is_this_one_and_every_row_that_works_has_its_test() -> None:
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs" / "serving.md").read_text(encoding="utf-8")
    assert runs_with_table() in page, "python -m laps_sd.serving.preflight prints it"
    sources = {path.name: path.read_text(encoding="utf-8") for path in (root / "tests").rglob("test_*.py")}
    for row in RUNS_WITH:
        if row.verdict == "works":
            file, name = row.shown_by.split("::")
            assert f"def {name}(" in sources[file], row.what
