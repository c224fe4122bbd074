"""The progress fields of a record: from ids, from text, and where nothing can be counted."""

import json

import pytest

from laps_sd.data.importers import ImportOptions, import_records
from laps_sd.data.progress.answers import AnswerCounter
from laps_sd.data.progress.counting import COUNTERS

TEXT = "Here are two reasons:\n1. It is cold.\n2. It is late.\n"


def test_ids_and_their_text_give_the_same_fields(letters):
    counter = AnswerCounter(letters)
    text = 2 * TEXT
    of_text = counter.fields_of_text(text, len(text) + 1)
    assert of_text == counter.fields_of_ids([ord(letter) for letter in text], len(text) + 1)
    assert len(of_text["progress"]) == 2 * len(COUNTERS)
    assert counter.classes is not None
    assert of_text["progress_table"] == counter.classes.name


def test_a_text_that_is_shorter_in_tokens_than_the_record_says_is_counted_as_far_as_it_goes(letters):
    assert len(AnswerCounter(letters).fields_of_text("a" * 40, 500)["progress"]) == len(COUNTERS)


def test_without_a_tokenizer_that_says_how_many_tokens_it_has_nothing_is_counted():
    class Uncounted:
        def encode(self, text, *, add_special_tokens=True):
            return [0] * len(text)

        def decode(self, token_ids, *, skip_special_tokens=False):
            return ""

    for counter in (AnswerCounter(None), AnswerCounter(Uncounted())):
        assert counter.classes is None
        assert counter.fields_of_ids([1] * 99, 99) == {}
        assert counter.fields_of_text("a" * 99, 99) == {}


CHAT = {"messages": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": TEXT}]}
SPEC = {
    "question_id": 1,
    "choices": [{"index": 0, "turns": [TEXT], "new_tokens": [len(TEXT)], "decoding_steps": [20], "wall_time": [0.1]}],
}
BENCH = {
    "backend": "sglang",
    "input_lens": [4],
    "output_lens": [len(TEXT) + 1],
    "ttfts": [0.1],
    "itls": [[0.1]],
    "errors": [""],
    "generated_texts": [TEXT],
}


@pytest.mark.parametrize(
    ("kind", "row", "options"),
    [("chat", CHAT, {}), ("spec-bench", SPEC, {}), ("sglang-bench", BENCH, {"natural_ends": True})],
)
def test_a_format_that_holds_answers_fills_the_fields_with_a_tokenizer_only(tmp_path, letters, kind, row, options):
    path = tmp_path / "answers.jsonl"
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    (counted,) = import_records(kind, [path], ImportOptions(tokenizer=letters, **options))
    (plain,) = import_records(kind, [path], ImportOptions(**options))
    wanted = AnswerCounter(letters).fields_of_text(TEXT, counted.output_tokens)
    assert (counted.progress, counted.progress_table) == (wanted["progress"], wanted["progress_table"])
    assert len(wanted["progress"]) == len(COUNTERS)
    assert (plain.progress, plain.progress_table) == (None, None)


def test_a_length_that_the_benchmark_forced_says_nothing_of_the_answer(tmp_path, letters):
    path = tmp_path / "answers.jsonl"
    path.write_text(json.dumps(BENCH) + "\n", encoding="utf-8")
    (record,) = import_records("sglang-bench", [path], ImportOptions(tokenizer=letters))
    assert record.progress is None
