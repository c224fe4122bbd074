"""Finished requests become a trace that training reads, and nobody waits for the disk."""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from laps_sd.data import PromptRequest, RequestRecord, read_records
from laps_sd.data.records.writing import to_json_line
from laps_sd.errors import InputError
from laps_sd.serving.config import RecordConfig
from laps_sd.serving.requests.record import Recorder, finished_record
from laps_sd.serving.requests.tokenizer_side import ServerFacts
from laps_sd.serving.requests.trace_file import closed_files


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


def test_clients_may_use_a_name_again(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    recorder = Recorder(RecordConfig(path=str(path)))
    for name in ("a", "b", "a", "a-2", "a", "a-2", "b"):
        recorder.add(record(name))
    names = [r.request_id for r in written(recorder, path)]
    assert names == ["a", "b", "a-2", "a-2-2", "a-3", "a-2-3", "b-2"], "the reader refuses a name that comes twice"


def test_names_are_kept_for_a_while_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laps_sd.serving.requests.record._NAMES", 4)
    recorder = Recorder(RecordConfig(path=str(tmp_path / "trace.jsonl")))
    for i in range(20):
        recorder.add(record(f"r{i}"))
    assert len(recorder._names) == 4
    recorder.close()


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


def until(true: Callable[[], object]) -> None:
    for _ in range(2000):
        if true():
            return
        time.sleep(0.01)
    pytest.fail("it never came true")


FULL_DISK = """
import os, resource, signal, sys, time, logging
from laps_sd.data import RequestRecord
from laps_sd.serving.requests import record as module
from laps_sd.serving.config import RecordConfig
logging.basicConfig(stream=sys.stdout, format="%(message)s")
module._FIRST_PAUSE_S = 0.02
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (700, hard))  # the kernel takes a part of a line, then nothing more
lost = []
recorder = module.Recorder(RecordConfig(path=sys.argv[1]), lost.append)
for i in range(20):
    assert recorder.add(RequestRecord(request_id=f"r{i}", prompt_tokens=3, output_tokens=5, finish_reason="stop"))
while recorder.failed is None:
    time.sleep(0.01)
time.sleep(0.2)
whole = open(sys.argv[1], "rb").read()
assert whole.endswith(b"\\n") and 0 < whole.count(b"\\n") < 20, whole
if sys.argv[2] == "room again":
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
recorder.close()
print("failed:", recorder.failed, "lost:", recorder.lost, sum(lost), open(sys.argv[1], "rb").read().count(b"\\n"))
"""


def on_a_full_disk(path: Path, end: str) -> str:
    done = subprocess.run([sys.executable, "-c", FULL_DISK, path, end], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_a_disk_that_was_full_loses_nothing(tmp_path: Path) -> None:
    said = on_a_full_disk(tmp_path / "trace.jsonl", "room again")
    assert [r.request_id for r in read_records(tmp_path / "trace.jsonl")] == [f"r{i}" for i in range(20)]
    assert said.count("nothing is recorded") == 1, "said once, not at every try"
    assert "File too large" in said
    assert "again; 0 records are lost" in said
    assert "failed: None lost: 0 0 20" in said


def test_a_disk_that_stays_full_is_said_and_counted(tmp_path: Path) -> None:
    said = on_a_full_disk(tmp_path / "trace.jsonl", "never")
    kept = [r.request_id for r in read_records(tmp_path / "trace.jsonl")]
    assert kept == [f"r{i}" for i in range(len(kept))], "whole lines, from the first on"
    assert f"lost: {20 - len(kept)} {20 - len(kept)} {len(kept)}" in said
    assert f"{20 - len(kept)} records of finished requests were not written" in said


@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare(1): no file system of a few KB can be mounted")
def test_a_real_file_system_without_room(tmp_path: Path) -> None:
    """ENOSPC of the kernel, in a mount of this test's own; rows until it is full, deleting a file makes room."""
    script = """
import os, sys, time
from laps_sd.data import RequestRecord, read_records
from laps_sd.serving.requests import record as module
from laps_sd.serving.config import RecordConfig
module._FIRST_PAUSE_S = 0.02
open("ballast", "wb").write(bytes(100_000))
recorder = module.Recorder(RecordConfig(path="trace.jsonl"))
for i in range(400):
    recorder.add(RequestRecord(request_id=f"r{i}", prompt_tokens=3, output_tokens=5, finish_reason="stop"))
while recorder.failed is None:
    time.sleep(0.01)
assert "No space left" in recorder.failed, recorder.failed
kept = open("trace.jsonl", "rb").read()
assert kept.endswith(b"}\\n"), kept[-200:]
os.unlink("ballast")
recorder.close()
print(recorder.lost, len(read_records("trace.jsonl")))
"""
    shell = 'mount -t tmpfs -o size=128k none "$0" && cd "$0" && exec "$1" -c "$2"'
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", shell, tmp_path, sys.executable, script],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if "unshare failed" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no mount of one's own on this machine: {done.stderr.strip()}")
    assert done.stdout == "0 400\n", done.stderr


def test_a_half_line_of_a_killed_server_is_cut_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(to_json_line(record("a")) + to_json_line(record("killed in the midst"))[:-20])
    recorder = Recorder(RecordConfig(path=str(path)))
    recorder.add(record("b"))
    assert [r.request_id for r in written(recorder, path)] == ["a", "b"]
    assert "half a line" in caplog.text


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_whole_last_line_stays(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(to_json_line(record("a")).rstrip() + end)
    recorder = Recorder(RecordConfig(path=str(path)))
    recorder.add(record("b"))
    assert [r.request_id for r in written(recorder, path)] == ["a", "b"]


@pytest.mark.parametrize("tail", [b"\0" * 300_000, b"{" + b"x" * 300_000, b"\0\0{"], ids=["zeros", "long", "both"])
def test_whatever_a_crash_left_goes(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(to_json_line(record("a")) + tail)
    recorder = Recorder(RecordConfig(path=str(path)))
    assert [r.request_id for r in written(recorder, path)] == ["a"]


def test_a_file_that_is_no_trace_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(b"PAR1 and no line feed")
    with pytest.raises(InputError, match="no trace in JSON lines"):
        Recorder(RecordConfig(path=str(path)))
    assert path.read_bytes() == b"PAR1 and no line feed"


@pytest.mark.parametrize("how", ["deleted", "moved", "folder gone"])
def test_a_file_that_is_taken_away_is_made_anew(tmp_path: Path, how: str) -> None:
    path = tmp_path / "folder" / "trace.jsonl"
    recorder = Recorder(RecordConfig(path=str(path)))
    recorder.add(record("a"))
    until(lambda: path.read_bytes())
    if how == "deleted":
        path.unlink()
    elif how == "moved":
        path.rename(path.with_name("rotated-by-somebody-else"))
    else:
        shutil.rmtree(path.parent)
    recorder.add(record("b"))
    assert [r.request_id for r in written(recorder, path)] == ["b"]


def test_no_exception_ends_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, errors = os.write, [MemoryError("no room"), ZeroDivisionError("a fault of ours"), OSError(5, "I/O error")]
    monkeypatch.setattr("laps_sd.serving.requests.record._FIRST_PAUSE_S", 0.01)

    def write(*values: Any) -> int:
        if errors:
            raise errors.pop(0)
        return real(*values)

    monkeypatch.setattr("laps_sd.serving.requests.trace_file.os.write", write)
    recorder = Recorder(RecordConfig(path=str(tmp_path / "trace.jsonl")))
    recorder.add(record("a"))
    until(lambda: not errors and recorder.failed is None)
    assert [r.request_id for r in written(recorder, tmp_path / "trace.jsonl")] == ["a"]
    assert "Traceback" in caplog.text, "what nobody expects says where it comes from"


def test_a_record_that_no_file_can_hold_costs_itself_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lost: list[int] = []
    recorder = Recorder(RecordConfig(path=str(tmp_path / "trace.jsonl")), lost.append)
    assert not recorder.add(record("a", prompt="half a character: \ud800"))
    assert recorder.prompt_fields("\ud800")["group"], "a repeat of it is told all the same"
    assert recorder.add(record("b"))
    assert [r.request_id for r in written(recorder, tmp_path / "trace.jsonl")] == ["b"]
    assert lost == [1]
    assert "UnicodeEncodeError" in caplog.text


def test_what_waits_for_a_disk_is_bounded_in_bytes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laps_sd.serving.requests.record._WAITING_BYTES", 50_000)
    gate, real = threading.Event(), os.write
    monkeypatch.setattr("laps_sd.serving.requests.trace_file.os.write", lambda *a: (gate.wait(10), real(*a))[1])
    recorder = Recorder(RecordConfig(path=str(tmp_path / "trace.jsonl")))
    taken = [recorder.add(record(f"r{i}", prompt="x" * 10_000)) for i in range(10)]
    assert taken == [True] * 4 + [False] * 6
    gate.set()
    recorder.close(30)
    assert recorder.lost == 6


def test_adding_never_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, real = threading.Event(), os.write
    monkeypatch.setattr("laps_sd.serving.requests.trace_file.os.write", lambda *a: (gate.wait(10), real(*a))[1])
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

    monkeypatch.setattr("laps_sd.serving.requests.trace_file.os.write", full)
    for i in range(10_002):
        recorder.add(record(f"r{i}"))
    until(lambda: recorder.failed)
    began = time.monotonic()
    recorder.close()
    assert time.monotonic() - began < 20  # 10,000 writes would take half an hour
    assert recorder.lost == 10_002


def test_a_record_tells_what_the_server_measured() -> None:
    made = finished_record(
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
