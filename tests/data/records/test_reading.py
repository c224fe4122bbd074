"""Reading: every kind of file, a block at a time."""

import gzip
import json
import tracemalloc

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from laps_sd.data import iter_records, read_records, write_records
from laps_sd.data.records.seen import SeenIds
from laps_sd.errors import InputError


def rows(count, **fields):
    return [
        {"request_id": f"r{i}", "prompt_tokens": 1, "output_tokens": i, "finish_reason": "stop", **fields}
        for i in range(count)
    ]


def lines(count, **fields):
    return "".join(json.dumps(row) + "\n" for row in rows(count, **fields)).encode()


def test_the_content_tells_the_kind_of_file_and_not_its_name(tmp_path, make_record):
    path = tmp_path / "trace.jsonl"
    write_records(tmp_path / "trace.parquet", [make_record()])
    for content in (
        lines(3),
        gzip.compress(lines(3)),
        zstandard.compress(lines(3)),
        gzip.compress(lines(1)) + gzip.compress(lines(3).split(b"\n", 1)[1]),  # two members, as `cat a.gz b.gz` makes
        zstandard.compress(lines(1)) + zstandard.compress(lines(3).split(b"\n", 1)[1]),
        b"\xef\xbb\xbf" + lines(3),
        lines(3).replace(b"\n", b"\r\n"),
        b"\n\n" + lines(3).replace(b"\n", b"\n \n"),
        lines(3).removesuffix(b"\n"),
        json.dumps(rows(3)).encode(),
        json.dumps(rows(3), indent=4).encode(),
    ):
        path.write_bytes(content)
        assert [record.request_id for record in read_records(path)] == ["r0", "r1", "r2"]


def test_parquet_inside_gzip_is_read_as_it_is(tmp_path, make_record):
    write_records(tmp_path / "trace.parquet", [make_record("a"), make_record("b")])
    path = tmp_path / "trace.parquet.gz"
    path.write_bytes(gzip.compress((tmp_path / "trace.parquet").read_bytes()))
    assert [record.request_id for record in read_records(path)] == ["a", "b"]


def test_records_come_before_the_file_is_read(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_bytes(lines(5000) + b"broken\n")
    records = iter_records(path)
    assert next(records).request_id == "r0"
    with pytest.raises(InputError, match="line 5001"):
        list(records)


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.gz", "trace.parquet", "array.json"])
def test_memory_does_not_grow_with_the_file(tmp_path, make_record, name):
    path = tmp_path / name
    prompt = "word " * 2500
    if name.startswith("array"):
        path.write_text(json.dumps(rows(2_000, prompt=prompt)), encoding="utf-8")
    else:
        write_records(path, (make_record(f"r{i}", prompt=prompt) for i in range(2_000)))  # 25 MB of prompts
    tracemalloc.start()
    try:
        count = sum(1 for _ in iter_records(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 2_000
    assert peak < 12e6


def test_a_file_of_pandas_is_read_as_it_was_meant(tmp_path):
    path = tmp_path / "pandas.parquet"
    frame = pd.DataFrame(rows(3))
    frame["max_new_tokens"] = [8.0, float("nan"), 9.0]  # pandas turns whole numbers with gaps into floats
    frame["ttft_s"] = [0.1, float("nan"), 0.2]
    frame["when"] = pd.to_datetime(["2026-01-01", None, "2026-01-03"])
    pq.write_table(pa.Table.from_pandas(frame), path)
    records = read_records(path)
    assert [record.max_new_tokens for record in records] == [8, None, 9]
    assert [record.ttft_s for record in records] == [0.1, None, 0.2]
    assert records[0].extra["when"].startswith("2026-01-01")
    assert "when" not in records[1].extra


def test_unknown_columns_are_kept_and_nulls_are_not_columns(write_lines, good_row):
    path = write_lines({**good_row, "tag": "x", "nothing": None, "deep": {"a": [1]}})
    assert read_records(path)[0].extra == {"tag": "x", "deep": {"a": [1]}}


def test_repeated_ids_are_found_however_far_apart():
    seen = SeenIds()
    for start in range(0, 50_000, 1000):
        assert seen.repeated([str(i) for i in range(start, start + 1000)]) == []
    assert seen.repeated(["new", "0", "49999", "25000", "new", "other"]) == [1, 2, 3, 4]
    assert seen.repeated(["other", "third"]) == [0]
