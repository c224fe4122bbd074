"""Finished requests become a trace that training reads, and nobody waits for the disk."""

import time
from pathlib import Path
from typing import Any

import pytest

from laps_sd.data import PromptRequest, RequestRecord, read_records
from laps_sd.errors import InputError
from laps_sd.serving.config import RecordConfig
from laps_sd.serving.record import Recorder, closed_files, record_of
from laps_sd.serving.tokenizer_side import ServerFacts


def record(name: str, **fields: Any) -> RequestRecord:
    return RequestRecord(request_id=name, prompt_tokens=3, output_tokens=5, finish_reason="stop", **fields)


def written(recorder: Recorder, path: Path) -> list[RequestRecord]:
    recorder.close()
    return read_records(path)


def test_what_is_added_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "trace.jsonl"
    recorder = Recorder(RecordConfig(path=str(path)))
    assert all(recorder.add(record(f"r{i}")) for i in range(20))
    assert [r.request_id for r in written(recorder, path)] == [f"r{i}" for i in range(20)]


def test_a_new_server_appends(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    for name in ("a", "b"):
        recorder = Recorder(RecordConfig(path=str(path)))
        recorder.add(record(name))
        recorder.close()
    assert [r.request_id for r in read_records(path)] == ["a", "b"]


def test_full_files_are_closed_and_the_oldest_deleted(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    recorder = Recorder(RecordConfig(path=str(path), max_mb=0.0005, keep=2))
    for i in range(60):
        recorder.add(record(f"r{i:03}"))
    recorder.close()
    closed = sorted(closed_files(path))
    assert len(closed) == 2
    names = [r.request_id for _, file in closed for r in read_records(file)]
    assert names == sorted(names)
    assert all(file.stat().st_size < 1500 for _, file in closed)


def test_a_prompt_is_kept_only_when_asked(tmp_path: Path) -> None:
    def fields(mode: str) -> dict[str, str | None]:
        recorder = Recorder(RecordConfig.model_validate({"path": str(tmp_path / f"{mode}.jsonl"), "prompts": mode}))
        first, second = recorder.prompt_fields("secret"), recorder.prompt_fields("secret")
        assert first == second, "repeats are told"
        recorder.close()
        return first

    assert fields("text") == {"prompt": "secret", "group": None}
    assert fields("none") == {"prompt": None, "group": None}
    hashed, other_server = fields("hash"), fields("hash")
    assert hashed["prompt"] is None
    assert hashed["group"] is not None
    assert "secret" not in hashed["group"]
    assert hashed != other_server, "salted: nobody can look a prompt up"


def test_a_folder_that_cannot_be_written_refuses_to_start(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("x")
    with pytest.raises(InputError, match="cannot be written"):
        Recorder(RecordConfig(path=str(blocked / "trace.jsonl")))


def test_a_disk_that_fails_stops_the_record_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(RecordConfig(path=str(tmp_path / "trace.jsonl")))

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("laps_sd.serving.record.os.write", full)
    recorder.add(record("a"))
    for _ in range(500):
        if recorder.failed:
            break
        time.sleep(0.01)
    assert recorder.failed is not None
    assert "No space left" in recorder.failed
    assert recorder.add(record("b")) is False


def test_adding_never_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    from laps_sd.serving import record as module

    gate = threading.Event()
    real = module.os.write
    monkeypatch.setattr("laps_sd.serving.record.os.write", lambda *a: (gate.wait(10), real(*a))[1])
    recorder = Recorder(RecordConfig(path=str(tmp_path / "trace.jsonl")))
    started = time.perf_counter()
    taken = [recorder.add(record(f"r{i}")) for i in range(10_050)]
    assert time.perf_counter() - started < 9  # the disk holds for 10
    assert False in taken, "what has no room is dropped, and the caller is told"
    gate.set()
    recorder.close(30)


def test_closing_waits_for_no_disk_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server must end, however many records are left that nobody will write."""
    recorder = Recorder(RecordConfig(path=str(tmp_path / "trace.jsonl")))

    def full(*_: object) -> int:
        time.sleep(0.2)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("laps_sd.serving.record.os.write", full)
    for i in range(10_002):
        recorder.add(record(f"r{i}"))
    while recorder.failed is None:
        time.sleep(0.01)
    began = time.monotonic()
    recorder.close()
    assert time.monotonic() - began < 20  # 10,000 writes would take half an hour


def test_a_record_tells_what_the_server_measured() -> None:
    made = record_of(
        {"id": "r", "prompt_tokens": 9, "completion_tokens": 6},
        PromptRequest(prompt="Hi", prompt_tokens=9, max_new_tokens=64, temperature=0.5, turns=1),
        {"queue_s": 0.5, "ttft_s": 0.7, "correct_drafts_histogram": [1, 0, 1], "accept_lengths": [3, 1],
         "draft_lengths": [7, 7]},
        finish_reason="stop",
        facts=ServerFacts("m", "NGRAM", 7),
        arrival_s=1.0,
        e2e_s=2.0,
        prompt="Hi",
        group=None,
    )  # fmt: skip
    assert made.accept_length == 2.0
    assert (made.prompt, made.turns, made.draft, made.max_correct_drafts) == ("Hi", 1, "NGRAM", 7)
    assert (made.queue_s, made.ttft_s, made.e2e_s, made.verify_steps) == (0.5, 0.7, 2.0, 2)
