"""Malformed input: one sentence with file, place, field and expectation, and exit code 2."""

import gzip
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from laps_sd.cli import run
from laps_sd.data import read_records
from laps_sd.data.records.bad_rows import Tolerance
from laps_sd.data.records.rows import iter_rows
from laps_sd.errors import InputError

HUGE = 10**30


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"output_tokens": -5}, "output_tokens: expected an integer >= 0, got -5"),
        ({"prompt_tokens": -1}, "prompt_tokens: expected an integer >= 0, got -1"),
        ({"output_tokens": 1.5}, "output_tokens: expected an integer, got 1.5"),
        ({"output_tokens": "40"}, "output_tokens: expected an integer, got text '40'"),
        ({"output_tokens": None}, "output_tokens: expected an integer, got None"),
        ({"output_tokens": True}, "output_tokens: expected an integer, got a boolean True"),
        ({"output_tokens": HUGE}, "output_tokens: expected an integer"),
        ({"output_tokens": 65}, "output_tokens: expected at most max_new_tokens (64), got 65"),
        ({"max_new_tokens": 0}, "max_new_tokens: expected an integer >= 1, got 0"),
        ({"prompt": 7}, "prompt: expected text or null, got 7"),
        ({"prompt": ["a"]}, "prompt: expected text or null, got a list ['a']"),
        ({"request_id": ""}, "request_id: expected text that is not empty, got text ''"),
        ({"request_id": 3}, "request_id: expected text, got 3"),
        ({"finish_reason": "eos"}, "finish_reason: expected `stop`, `length` or `abort`, got text 'eos'"),
        ({"temperature": -0.1}, "temperature: expected a number >= 0, got -0.1"),
        ({"e2e_s": -2}, "e2e_s: expected a number >= 0, got -2"),
        ({"ttft_s": "fast"}, "ttft_s: expected a number or null, got text 'fast'"),
        (
            {"correct_drafts_histogram": [2, 1, 2]},
            "correct_drafts_histogram: expected counts that add up to verify_steps (6)",
        ),
        ({"correct_drafts_histogram": [2, 0, 0, 0, 4]}, "correct_drafts_histogram: expected no step with more than"),
        ({"correct_drafts_histogram": [2, -1, 5]}, "correct_drafts_histogram[1]: expected an integer >= 0, got -1"),
        ({"correct_drafts_histogram": 6}, "correct_drafts_histogram: expected a list or null, got 6"),
        ({"accept_lengths": [1, 2]}, "accept_lengths: expected one value per verify step (6), got 2"),
        ({"accept_lengths": [1, 1, 1, 1, 1, 0]}, "accept_lengths[5]: expected an integer >= 1, got 0"),
        ({"draft_lengths": [5]}, "draft_lengths: expected one value per verify step (6), got 1"),
        ({"extra": 5}, "extra: expected an object, got 5"),
    ],
)
def test_a_bad_field_is_named_with_file_and_line(write_lines, good_row, change, sentence):
    path = write_lines(good_row, {**good_row, "request_id": "r2", **change})
    with pytest.raises(InputError) as refusal:
        read_records(path)
    assert str(refusal.value).startswith(f"{path}: line 2: {sentence}")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("missing", ["request_id", "prompt_tokens", "output_tokens", "finish_reason"])
def test_a_missing_field_is_named(write_lines, good_row, missing):
    good_row.pop(missing)
    path = write_lines(good_row)
    with pytest.raises(InputError, match=f"line 1: {missing}: expected a value, the field is missing"):
        read_records(path)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b'{"request_id": "r2", ', "line 2: expected one JSON object, got "),
        (b"not json", "line 2: expected one JSON object, got 'not json'"),
        (b"[1, 2]", "line 2: expected an object with the fields of a record, got list"),
        (b'"text"', "line 2: expected an object with the fields of a record, got str"),
        (b"null", "line 2: expected an object with the fields of a record, got NoneType"),
        (b'{"request_id": "\xff"}', "line 2: expected one JSON object, got "),
        (b'{"request_id": NaN}', "line 2: request_id: expected text, got nan"),
        (
            b'{"request_id": "a", "e2e_s": Infinity, "prompt": "\\ud800"}',
            "line 2: expected one JSON object, a text holds",
        ),
        (b'{"prompt": "\\ud800"}', "line 2: expected one JSON object, a text holds a lone surrogate"),
        (b'{"prompt": "\\ud800b and so on"}', "line 2: expected one JSON object, a text holds a lone surrogate"),
        (b'{"request_id": ' + b"[" * 100_000, "line 2: expected one JSON object, got "),
        (b"\x00\x01\x02", "line 2: expected one JSON object, got "),
    ],
)
def test_a_line_that_is_no_json_object_is_shown(write_lines, good_row, line, sentence):
    path = write_lines(good_row, line)
    with pytest.raises(InputError) as refusal:
        read_records(path)
    assert str(refusal.value).startswith(f"{path}: {sentence}")


def content(name, row):
    """The bytes of a file that cannot be used."""
    lines = b"".join(json.dumps({**row, "request_id": f"r{i}"}).encode() + b"\n" for i in range(2000))
    return {
        "empty": b"",
        "blank": b"\n \n\n",
        "binary": os.urandom(7) + b"\x00" * 64,
        "elf": b"\x7fELF\x02\x01\x01\x00" + b"\x00" * 100,
        "png": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
        "cut gzip": gzip.compress(lines)[:-20],
        "cut zstd": zstandard.compress(lines)[:-20],
        "damaged gzip": gzip.compress(lines)[:10] + b"\xff" * 50,
        "gzip of nothing": gzip.compress(b""),
        "cut parquet": b"PAR1" + lines,
        "not closed array": b"[" + json.dumps(row).encode(),
        "array of numbers": b"[1, 2, 3]",
        "two arrays": b"[" + json.dumps(row).encode() + b"][]",
    }[name]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("empty", "expected at least one record, the file is empty"),
        ("blank", "expected at least one record, found none that can be used"),
        ("binary", "found binary data"),
        ("elf", "found binary data"),
        ("png", "found binary data"),
        ("cut gzip", "the gzip stream ends in the middle"),
        ("cut zstd", "the zstd stream ends in the middle"),
        ("damaged gzip", "the gzip stream is damaged"),
        ("gzip of nothing", "the file is empty"),
        ("cut parquet", "expected a whole Parquet file"),
        ("not closed array", "item 2: expected a JSON array of objects, the array does not end"),
        ("array of numbers", "item 1: expected a JSON array of objects"),
        ("two arrays", "there is more text behind the array"),
    ],
)
def test_the_command_line_says_one_sentence_and_exits_with_2(tmp_path, good_row, capsys, name, expected):
    path = tmp_path / "input.bin"
    path.write_bytes(content(name, good_row))
    out = tmp_path / "out.parquet"
    assert run(["import", "records", str(path), "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"laps-sd: {path}")
    assert expected in error
    assert error.count("\n") == 1
    assert "Traceback" not in error
    assert not out.exists()


def test_a_folder_a_missing_file_and_an_unknown_format_exit_with_2(tmp_path, capsys):
    out = str(tmp_path / "out.parquet")
    assert run(["import", "records", str(tmp_path), "--out", out]) == 2
    assert "expected a file, found a folder" in capsys.readouterr().err
    assert run(["import", "records", str(tmp_path / "none.jsonl"), "--out", out]) == 2
    assert "there is no such file" in capsys.readouterr().err
    assert run(["import", "excel", str(tmp_path), "--out", out]) == 2
    assert "known are sglang-metrics, sglang-bench" in capsys.readouterr().err


def test_a_bad_row_of_parquet_is_named_by_row(tmp_path, good_row):
    path = tmp_path / "trace.parquet"
    pq.write_table(pa.Table.from_pylist([good_row, {**good_row, "request_id": "r2", "output_tokens": -1}]), path)
    with pytest.raises(InputError, match=r"row 2: output_tokens: expected an integer >= 0, got -1"):
        read_records(path)
    pq.write_table(pa.table({"request_id": ["a"], "prompt_tokens": ["many"]}), path)
    with pytest.raises(InputError, match=r"row 1: prompt_tokens: expected an integer, got text 'many'"):
        read_records(path)


def test_a_repeated_id_is_named_where_it_comes_again(write_lines, good_row):
    path = write_lines(good_row, {**good_row, "request_id": "r2"}, good_row)
    with pytest.raises(
        InputError, match=r"line 3: request_id: expected a name that no earlier row has, got 'r1' again"
    ):
        read_records(path)


def test_skip_bad_leaves_out_so_many_and_counts_them(write_lines, good_row, tmp_path, capsys):
    bad = {**good_row, "request_id": "bad", "output_tokens": -1}
    path = write_lines(good_row, bad, b"broken", good_row, {**good_row, "request_id": "r2"})
    out = tmp_path / "out.parquet"
    report = tmp_path / "report.json"
    assert run(["import", "records", str(path), "--out", str(out), "--skip-bad", "3", "--json", str(report)]) == 0
    assert [record.request_id for record in read_records(out)] == ["r1", "r2"]
    assert json.loads(report.read_text())["skipped"] == 3
    error = capsys.readouterr().err
    assert "line 2" in error
    assert "line 3" in error
    assert "line 4" in error
    assert run(["import", "records", str(path), "--out", str(out), "--skip-bad", "2"]) == 2
    assert "line 4" in capsys.readouterr().err


def test_what_was_read_before_a_cut_is_kept_when_one_bad_row_is_allowed(tmp_path, good_row):
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(content("cut gzip", good_row))
    told = []
    assert len(read_records(path, skip_bad=2, on_bad=told.append)) > 1000
    assert "ends in the middle" in told[-1]


def test_a_line_without_end_is_not_read_into_memory(tmp_path):
    path = tmp_path / "endless.jsonl"
    path.write_bytes(b'{"prompt": "' + b"x" * 5_000_000)
    with pytest.raises(InputError, match="line 1: expected at most 1 MiB, it is longer"):
        list(iter_rows(path, Tolerance(), longest=1 << 20))
