"""Records survive every file format, whatever is in them. The test data are drawn from the schema itself."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps_sd.data import RequestRecord, read_records, write_records
from laps_sd.data.progress.classes import VERSION
from laps_sd.data.progress.counting import COUNTERS, checkpoints_below
from laps_sd.data.records.schema import FIELD_NAMES
from laps_sd.errors import InputError

# Every character but lone surrogates; U+2028, NUL and right-to-left marks are drawn far more often than by chance.
TEXT = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("\u2028\x00\u202e\u05d0\r\n\ufeff")))
JSON = st.recursive(
    st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=4,
)
EXTRA = st.dictionaries(TEXT.filter(lambda name: name not in FIELD_NAMES), JSON, max_size=3)


def strategy_for(kind: Any) -> st.SearchStrategy[Any]:
    """Draw what a type of the schema allows, up to its limits."""
    match kind:
        case msgspec.inspect.Metadata():
            return strategy_for(kind.type)
        case msgspec.inspect.UnionType():
            return st.one_of([strategy_for(one) for one in kind.types])
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.IntType():
            return st.integers(kind.ge, kind.le)
        case msgspec.inspect.FloatType():
            return st.floats(kind.ge, kind.le)
        case msgspec.inspect.StrType():
            return TEXT.filter(lambda text: len(text) >= (kind.min_length or 0))
        case msgspec.inspect.LiteralType():
            return st.sampled_from(kind.values)
        case msgspec.inspect.VarTupleType():
            return st.lists(strategy_for(kind.item_type), max_size=4).map(tuple)
        case msgspec.inspect.DictType():
            return EXTRA
    raise AssertionError(f"no strategy for {kind}")


def consistent(fields: dict[str, Any]) -> dict[str, Any]:
    """Make drawn fields obey the rules between fields."""
    cap = fields["max_new_tokens"]
    if cap is not None:
        fields["output_tokens"] = min(fields["output_tokens"], cap)
    histogram = fields["correct_drafts_histogram"]
    if histogram is not None:
        fields["verify_steps"] = sum(histogram)
        fields["max_correct_drafts"] = max(fields["max_correct_drafts"] or 0, len(histogram))
        if fields["verify_steps"] > 2**53:
            fields["correct_drafts_histogram"], fields["verify_steps"] = None, None
    for name in ("accept_lengths", "draft_lengths"):
        if fields[name] is not None and fields["verify_steps"] is not None:
            fields[name] = None
    fields["progress"], table = None, fields["progress_table"]
    rows = len(checkpoints_below(fields["output_tokens"]))
    if table is not None and rows:
        fields["progress"] = tuple(range(rows * len(COUNTERS)))
        fields["progress_table"] = f"v{VERSION}-{table}"
    return fields


RECORDS = st.lists(
    st.fixed_dictionaries(
        {field.name: strategy_for(field.type) for field in msgspec.inspect.type_info(RequestRecord).fields}
    ).map(lambda fields: RequestRecord(**consistent(fields))),
    min_size=1,
    max_size=6,
    unique_by=lambda record: record.request_id,
)


@given(records=RECORDS)
@settings(max_examples=40, deadline=None)
def test_records_parquet_json_lines_records_are_equal(records):
    with TemporaryDirectory() as folder:
        parquet, lines, again = (Path(folder) / name for name in ("a.parquet", "b.jsonl", "c.parquet"))
        assert write_records(parquet, records) == len(records)
        assert write_records(lines, read_records(parquet)) == len(records)
        assert write_records(again, read_records(lines)) == len(records)
        assert read_records(again) == records


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".jsonl.gz", ".jsonl.zst"])
@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "a\u2028b\u2029c\x85d",
        "nul \x00 inside",
        "\u202bשלום مرحبا\u202c",
        "x" * 1_000_000,
        "\r\n\t",
        '"{[\\',
        "😀" * 99,
    ],
)
def test_awkward_prompts_survive(tmp_path, make_record, prompt, suffix):
    path = tmp_path / f"trace{suffix}"
    records = [make_record("a", prompt=prompt), make_record("b", prompt=None)]
    write_records(path, records)
    assert read_records(path) == records


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
@pytest.mark.parametrize("field", ["prompt", "request_id", "category"])
def test_a_lone_surrogate_is_refused_with_a_reason_and_leaves_no_file(tmp_path, make_record, suffix, field):
    path = tmp_path / f"trace{suffix}"
    records = [make_record("ok"), make_record(**{"request_id": "bad", field: "x\ud800"})]
    with pytest.raises(
        InputError, match=rf"record 2 .*{field}: expected Unicode text, got a lone surrogate at character 1"
    ):
        write_records(path, records)
    assert list(tmp_path.iterdir()) == []


def test_unknown_columns_are_columns_of_their_own_in_parquet(tmp_path, make_record):
    path = tmp_path / "trace.parquet"
    records = [
        make_record("a", extra={"tag": "x", "score": 1.5, "nested": {"k": [1, None]}}),
        make_record("b", extra={"tag": "y", "hits": 3}),
    ]
    write_records(path, records)
    table = pq.read_table(path)
    assert table["tag"].to_pylist() == ["x", "y"]
    assert table["hits"].to_pylist() == [None, 3]
    assert read_records(path) == records


def test_an_unknown_column_that_changes_its_type_loses_nothing(tmp_path, make_record):
    path = tmp_path / "trace.parquet"
    records = [
        make_record(str(i), extra={"tag": "text" if i < 9000 else {"now": i}, "big": 2**80}) for i in range(9100)
    ]
    write_records(path, records)
    assert read_records(path) == records


def test_writing_replaces_the_file_whole_or_not_at_all(tmp_path, make_record):
    path = tmp_path / "trace.jsonl"
    write_records(path, [make_record("old")])

    def failing():
        yield make_record("new")
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        write_records(path, failing())
    assert [record.request_id for record in read_records(path)] == ["old"]
    assert [file.name for file in tmp_path.iterdir()] == ["trace.jsonl"]


@pytest.mark.parametrize("name", ["trace", "trace.txt", "trace.gz", "trace.csv.gz"])
def test_a_name_that_tells_no_format_is_refused(tmp_path, make_record, name):
    with pytest.raises(InputError, match=r"expected a name that ends in \.parquet, \.jsonl"):
        write_records(tmp_path / name, [make_record()])


def test_the_same_records_give_the_same_bytes(tmp_path, make_record):
    records = [make_record(str(i), prompt="p" * i) for i in range(50)]
    for suffix in (".parquet", ".jsonl.gz", ".jsonl.zst"):
        first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
        write_records(first, records)
        write_records(second, records)
        assert first.read_bytes() == second.read_bytes()
