"""What `data describe` says about a trace, and the other verbs of `data`."""

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps_sd.cli import run
from laps_sd.data import read_records, write_records
from laps_sd.data.builtin import DRAFTS
from laps_sd.data.describe import describe, distribution
from laps_sd.errors import InputError


@pytest.fixture
def records(make_record):
    steps = {"verify_steps": 4, "correct_drafts_histogram": (2, 0, 2)}
    return [
        make_record("a", prompt="One", category="x", source="s", output_tokens=10, **steps),
        make_record("b", prompt="One", category="x", source="s", output_tokens=20, finish_reason="length"),
        make_record("c", prompt="one!", category="y", source="s", output_tokens=30, group="g", extra={"tag": 1}),
        make_record("d", prompt_tokens=0, output_tokens=40, finish_reason="abort"),
    ]


def test_counts_distributions_duplicates_and_parts(records):
    found = describe(iter(records))
    assert (found["n"], found["censored_share"]) == (4, 0.5)
    assert found["finish_reasons"] == {"stop": 2, "length": 1, "abort": 1}
    assert found["output_tokens"]["mean"] == 25
    assert (found["output_tokens"]["min"], found["output_tokens"]["p50"], found["output_tokens"]["max"]) == (10, 25, 40)
    assert found["prompt_tokens"]["n"] == 3  # 0 means not known
    assert (found["accept_length"]["n"], found["accept_length"]["mean"]) == (1, 2.0)
    assert found["prompts"] == {"n": 3, "exact_duplicates": 1, "same_words": 2, "groups": 1}
    assert {name: part["n"] for name, part in found["by_category"].items()} == {"x": 2, "y": 1}
    assert found["by_category"]["x"]["censored_share"] == 0.5
    assert found["by_draft"] is None
    assert found["unknown_columns"] == {"tag": 1}
    assert (found["fields"]["request_id"], found["fields"]["category"], found["fields"]["ttft_s"]) == (4, 3, 0)


def test_a_part_without_numbers_is_null_and_never_made_up():
    assert distribution({}) is None


@given(st.lists(st.integers(0, 50), min_size=1))
def test_quantiles_are_those_of_the_single_values(values):
    found = distribution(Counter(values))
    assert found["mean"] == pytest.approx(np.mean(values))
    for name, share in (("p10", 0.1), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        assert found[name] == pytest.approx(np.quantile(values, share))


def test_the_command_line_describes_in_a_table_json_and_a_page(records, tmp_path, capsys):
    trace, report, page = tmp_path / "trace.parquet", tmp_path / "d.json", tmp_path / "d.html"
    write_records(trace, records)
    assert run(["data", "describe", str(trace), "--json", str(report), "--report", str(page)]) == 0
    printed = capsys.readouterr().out
    assert "3 prompts, 1 exact duplicates, 2 with the words of another, 1 named groups" in printed
    assert json.loads(report.read_text(encoding="utf-8")) == describe(records)
    html = page.read_text(encoding="utf-8")
    assert "By category" in html
    assert "Accept length of a request" in html
    assert "http" not in html.split("<body")[0].lower().replace("https://plotly", "").split("<script")[0]


def test_a_trace_without_drafts_has_a_page_too(make_record, tmp_path):
    trace, page = tmp_path / "trace.jsonl", tmp_path / "d.html"
    write_records(trace, [make_record()])
    assert run(["data", "describe", str(trace), "--report", str(page)]) == 0
    assert "Accept length of a request" not in page.read_text(encoding="utf-8")


def test_split_keeps_groups_whole_and_loses_nothing(make_record, tmp_path):
    trace, train, test = tmp_path / "trace.jsonl", tmp_path / "train.parquet", tmp_path / "test.jsonl"
    write_records(trace, [make_record(str(i), prompt=f"p {i}", group=str(i % 10)) for i in range(40)])
    arguments = ["data", "split", str(trace), "--train", str(train), "--test", str(test), "--test-share", "0.3"]
    assert run(arguments) == 0
    left, right = read_records(train), read_records(test)
    assert (len(left), len(right)) == (28, 12)
    assert not {r.group for r in left} & {r.group for r in right}


def test_the_schema_is_printed_as_a_table(capsys):
    assert run(["data", "schema"]) == 0
    assert capsys.readouterr().out.startswith("| field | type | unit |")


def test_the_built_in_trace_is_handed_out(tmp_path, capsys):
    out = tmp_path / "trace.parquet"
    assert run(["data", "builtin", "--draft", "ngram", "--out", str(out)]) == 0
    assert len(read_records(out)) >= 400
    assert run(["data", "builtin", "--draft", "eagle", "--out", str(out)]) == 2
    assert f"there are {' and '.join(DRAFTS)}" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["data", "describe"], ["data", "nonsense"], ["data", "prompts", "--n", "0"]])
def test_wrong_usage_exits_with_2(arguments):
    assert run(arguments) == 2


def test_unreadable_traces_exit_with_2(tmp_path):
    assert run(["data", "describe", str(tmp_path / "none.parquet")]) == 2
    with pytest.raises(InputError, match="no records"):
        describe([])
