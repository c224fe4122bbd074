"""Where results may be written: refused before the work, never in the place of what is not ours."""

import json
import os

import pytest

from laps_sd.cli import run
from laps_sd.data import builtin_trace, write_records
from laps_sd.errors import InputError
from laps_sd.files import check_outputs, check_writable, write_json


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    write_records(path, builtin_trace("ngram")[:5])
    return path


def test_a_file_that_is_read_is_not_written(tmp_path):
    (tmp_path / "link.json").symlink_to(tmp_path / "trace.jsonl")
    with pytest.raises(InputError, match="would be overwritten"):
        check_outputs([tmp_path / "link.json"], [tmp_path / "trace.jsonl"])


def test_two_results_do_not_share_a_file(tmp_path):
    with pytest.raises(InputError, match="two results"):
        check_outputs([tmp_path / "a", None, tmp_path / "b" / ".." / "a"])


def test_asking_leaves_nothing_behind(tmp_path):
    check_outputs([tmp_path / "new" / "folder" / "a.json"])
    assert list(tmp_path.iterdir()) == []


def test_a_place_below_a_file_is_refused(trace):
    with pytest.raises(InputError, match="cannot be written"):
        check_writable(trace / "a.json")


def test_a_pipe_is_not_replaced_by_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="device or a pipe"):
        check_writable(tmp_path / "pipe")


def test_a_name_that_can_never_be_written_is_refused_before_the_work(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (tmp_path / "loop", tmp_path / ("a" * 300)):
        with pytest.raises(InputError, match="cannot be written"):
            check_outputs([path])
    check_outputs([tmp_path / "a"], [tmp_path / "loop"])  # whoever reads it will say so


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    write_json(tmp_path / "link.json", {"a": None})
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text()) == {"a": None}


@pytest.mark.parametrize(
    "arguments",
    [
        ("import", "records", "trace.jsonl", "--out", "trace.jsonl"),
        ("import", "records", "trace.jsonl", "--out", "new.jsonl", "--json", "trace.jsonl"),
        ("import", "records", "trace.jsonl", "--out", "new.jsonl", "--json", "new.jsonl"),
        ("data", "describe", "trace.jsonl", "--json", "trace.jsonl"),
        ("data", "describe", "trace.jsonl", "--report", "."),
        ("data", "split", "trace.jsonl", "--train", "new.jsonl", "--test", "new.jsonl"),
        ("data", "split", "trace.jsonl", "--train", "new.jsonl", "--test", "trace.jsonl"),
        ("data", "split", "trace.jsonl", "--train", "new.jsonl", "--test", "new.txt"),
        ("collect", "--url", "http://127.0.0.1:1", "--prompts", "trace.jsonl", "--out", "trace.jsonl"),
    ],
)
def test_no_verb_writes_over_its_input(trace, monkeypatch, capsys, arguments):
    monkeypatch.chdir(trace.parent)
    before = trace.read_bytes()
    assert run(list(arguments)) == 2
    said = capsys.readouterr().err
    assert said.startswith("laps-sd: ")
    assert "unexpected" not in said
    assert [path.name for path in trace.parent.iterdir()] == ["trace.jsonl"]
    assert trace.read_bytes() == before
