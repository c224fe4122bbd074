"""The record: its rules, what follows from them, and its documentation."""

from pathlib import Path

import pyarrow as pa
import pytest

from laps_sd.data import PromptRequest, RequestRecord
from laps_sd.data.progress.counting import COUNTERS
from laps_sd.data.records.parquet import arrow_schema
from laps_sd.data.records.schema import COLUMN_NAMES, describe_fields, fields_table


def test_only_an_answer_that_ended_by_itself_is_not_censored(make_record):
    assert not make_record(finish_reason="stop").censored
    assert make_record(finish_reason="length").censored
    assert make_record(finish_reason="abort").censored


def test_accept_length_counts_the_bonus_token_of_every_step(make_record):
    # 77 steps emitted 1 token, 8 emitted 2, 4 emitted 3, 2 emitted 5: 115 tokens in 91 steps.
    record = make_record(output_tokens=116, correct_drafts_histogram=(77, 8, 4, 0, 2), verify_steps=91)
    assert record.accept_length == pytest.approx(115 / 91)


@pytest.mark.parametrize("histogram", [None, (), (0, 0)])
def test_accept_length_is_unknown_without_steps(make_record, histogram):
    assert make_record(correct_drafts_histogram=histogram).accept_length is None


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"max_new_tokens": 8}, "output_tokens"),
        ({"verify_steps": 4, "correct_drafts_histogram": (1, 2)}, "correct_drafts_histogram"),
        ({"max_correct_drafts": 1, "correct_drafts_histogram": (1, 2, 1)}, "correct_drafts_histogram"),
        ({"verify_steps": 2, "accept_lengths": (1, 2, 3)}, "accept_lengths"),
        ({"verify_steps": 2, "draft_lengths": (5,)}, "draft_lengths"),
        ({"progress": (1, 2)}, "progress"),
        ({"progress": (1, 2), "progress_table": "v1-abc", "output_tokens": 40}, "progress"),
        ({"progress": (0,) * len(COUNTERS), "progress_table": "v1-abc", "output_tokens": 32}, "progress"),
        ({"extra": {"prompt": "again"}}, "extra"),
    ],
)
def test_fields_that_contradict_each_other_are_refused_by_name(make_record, fields, field):
    with pytest.raises(ValueError, match=rf"^{field}: expected "):
        make_record(**fields)


def test_a_histogram_may_be_shorter_or_longer_with_zeros(make_record):
    assert make_record(max_correct_drafts=7, verify_steps=3, correct_drafts_histogram=(3,)).accept_length == 1
    assert make_record(max_correct_drafts=1, verify_steps=3, correct_drafts_histogram=(3, 0, 0)).accept_length == 1


def test_counts_of_another_version_are_kept_as_they_are(make_record):
    assert make_record(progress=(1, 2, 3), progress_table="v9-abc").progress == (1, 2, 3)


def test_replace_changes_a_copy(make_record):
    record = make_record()
    assert record.replace(output_tokens=3).output_tokens == 3
    assert record.output_tokens == 9


def test_a_predictor_sees_nothing_of_the_answer(make_record):
    asked = {"prompt": "Hi", "prompt_tokens": 7, "max_new_tokens": 50, "temperature": 0.5, "model": "m", "turns": 2}
    one = make_record(output_tokens=1, **asked)
    other = make_record(output_tokens=50, finish_reason="length", e2e_s=9.0, **asked)
    assert PromptRequest.from_record(one) == PromptRequest.from_record(other) == PromptRequest(**asked)


def test_the_parquet_schema_follows_from_the_record():
    schema = arrow_schema()
    assert tuple(schema.names) == COLUMN_NAMES
    assert schema.field("output_tokens").type == pa.int64()
    assert not schema.field("output_tokens").nullable
    assert schema.field("finish_reason").type == pa.string()
    assert schema.field("correct_drafts_histogram").type == pa.list_(pa.int64())
    assert schema.field("ttft_s").type == pa.float64()
    assert schema.field("ttft_s").metadata[b"unit"] == b"seconds"


def test_every_field_is_documented_with_meaning_and_origin():
    docs = list(describe_fields())
    assert [doc.name for doc in docs] == list(RequestRecord.__struct_fields__)
    assert all(doc.meaning and doc.origin for doc in docs)
    assert [doc.name for doc in docs if doc.required] == [
        "request_id",
        "prompt_tokens",
        "output_tokens",
        "finish_reason",
    ]


def test_the_documentation_table_is_up_to_date():
    text = (Path(__file__).parents[3] / "docs" / "records.md").read_text(encoding="utf-8")
    table = text.split("<!-- fields -->\n")[1].split("<!-- /fields -->")[0]
    assert table == fields_table(), "run `laps-sd data schema` and put its output between the marks in docs/records.md"
