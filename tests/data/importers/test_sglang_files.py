"""SGLang's own files and those of its benchmark: real lengths, natural ends, other engines, warm-ups, constraints."""

import json

import pytest

from laps_sd.data.importers import ImportOptions, import_records, importer_class
from laps_sd.errors import InputError


class WordTokenizer:
    """A token a word."""

    def encode(self, text, *, add_special_tokens=True):
        return text.split()


def bench(**fields):
    run = {"backend": "sglang-oai-chat", "dataset_name": "custom", "input_lens": [9, 9, 9], "output_lens": [4, 12, 12]}
    return {**run, "generated_texts": ["one two three", "word " * 12, "one two"], "errors": [""] * 3, **fields}


@pytest.fixture
def read(tmp_path):
    def read(kind, text, **options):
        path = tmp_path / "file.json"
        path.write_text(text if isinstance(text, str) else json.dumps(text) + "\n", encoding="utf-8")
        importer = importer_class(kind)(ImportOptions(**options))
        return list(importer.records([path])), importer.remarks()

    return read


def test_real_usage_below_the_cap_is_an_answer_that_ended(read):
    found, _ = read("sglang-bench", bench(), natural_ends=True, tokenizer=WordTokenizer(), max_new_tokens=12)
    assert [(r.output_tokens, r.finish_reason) for r in found] == [(4, "stop"), (12, "length"), (3, "stop")]


def test_without_a_cap_that_is_said(read):
    found, remarks = read("sglang-bench", bench(), natural_ends=True, tokenizer=WordTokenizer())
    assert [(r.output_tokens, r.finish_reason) for r in found] == [(4, "length"), (12, "length"), (3, "stop")]
    assert "3 answers came without the cap of their run" in remarks[0]


def test_an_indented_object_is_one_run_and_another_engine_is_named(read):
    run = bench(backend="vllm", dataset_name=None)
    found, remarks = read("sglang-bench", json.dumps(run, indent=2))
    assert [r.source for r in found] == ["vllm-bench"] * 3
    assert remarks == ["3 requests were measured on another engine than SGLang (vllm)"]
    twice = json.dumps(run, indent=2) + "\n" + json.dumps(bench(), indent="\t") + "\n"
    assert len(read("sglang-bench", twice)[0]) == 6


@pytest.mark.parametrize("text", ['{\n  "backend": "vllm",\n', '{\n "a": [}\n', "{\n]\n", '{\n "a": 1\n} x\n', "{\n"])
def test_an_indented_object_that_is_cut_or_broken_is_one_sentence(read, text):
    with pytest.raises(InputError) as refusal:
        read("sglang-bench", text)
    assert "\n" not in str(refusal.value)


def test_an_answer_cut_below_the_stated_cap_contradicts_it(read):
    row = {"request_id": "r", "prompt_tokens": 1, "output_tokens": 3, "finish_reason": "length"}
    with pytest.raises(InputError, match="expected `stop` for an answer of 3 tokens, below the cap of 80"):
        read("records", row, max_new_tokens=80)
    assert len(read("records", row)[0]) == 1


def metrics(tokens=5, reason="stop", **sampling):
    return {
        "id": f"r{tokens}{reason}{len(sampling)}",
        "finish_reason": {"type": reason},
        "prompt_tokens": 7,
        "completion_tokens": tokens,
        "request_parameters": json.dumps({"text": "Hm?", "sampling_params": sampling}),
    }


def test_requests_that_asked_for_no_token_are_left_out(read):
    rows = [metrics(), metrics(0, "length", max_new_tokens=0), metrics(0, "length", max_new_tokens=8)]
    found, remarks = read("sglang-metrics", "".join(json.dumps(row) + "\n" for row in rows))
    assert [r.output_tokens for r in found] == [5]
    assert "2 requests that asked for no token (SGLang's warm-up is one) were left out" in remarks[0]


@pytest.mark.parametrize(
    ("sampling", "constraint"),
    [
        ({"regex": "(yes|no)"}, "regex:(yes|no)"),
        ({"json_schema": '{"type": "object"}'}, 'json_schema:{"type":"object"}'),
        ({"json_schema": "{"}, "json_schema:{"),
        ({"structural_tag": {"a": 1}}, 'structural_tag:{"a":1}'),
        ({"ebnf": "x" * 5000}, "ebnf:" + "x" * 1995),
        ({"regex": None, "temperature": 0.5}, None),
    ],
)
def test_what_holds_an_answer_to_a_form_is_recorded(read, sampling, constraint):
    ((record,), _) = read("sglang-metrics", metrics(**sampling))
    assert record.constraint == constraint


def test_several_files_of_one_name_are_told_apart_by_their_folders(tmp_path):
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.jsonl").write_text(json.dumps(bench()) + "\n")
    found = list(import_records("sglang-bench", [tmp_path / "x" / "run.jsonl", tmp_path / "y" / "run.jsonl"]))
    assert [r.request_id for r in found[::3]] == ["x/run/1/0", "y/run/1/0"]
