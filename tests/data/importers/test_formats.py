"""Other people's files. The SGLang samples in fixtures/ were written by SGLang 0.5.23's CPU server."""

import gzip
import json
from pathlib import Path

import pytest

from laps_sd.cli import run
from laps_sd.data import read_records, write_records
from laps_sd.data.importers import ImportOptions, import_records
from laps_sd.data.records.bad_rows import Tolerance
from laps_sd.errors import InputError

FIXTURES = Path(__file__).parents[1] / "fixtures"


class WordTokenizer:
    """One token a word; ids cannot be decoded without having been encoded here."""

    def __init__(self):
        self.words = []

    def encode(self, text, *, add_special_tokens=True):
        self.words += text.split()
        return list(range(len(self.words) - len(text.split()), len(self.words)))

    def decode(self, token_ids, *, skip_special_tokens=False):
        return " ".join(self.words[i] for i in token_ids)

    def apply_chat_template(self, conversation, *, tokenize=True, add_generation_prompt=False):
        raise ValueError("no template")


def records(kind, path, **options):
    return list(import_records(kind, [path], ImportOptions(**options)))


# arrivals


def test_arrivals_keep_times_lengths_and_other_columns(tmp_path):
    path = tmp_path / "azure.csv.gz"
    path.write_bytes(
        gzip.compress(b"arrival_s,input_tokens,output_tokens,blocks\n0.0,374,44,3\n4.31,396,0,\n\n5,1,2,x\n")
    )
    first, second, third = records("arrivals", path)
    assert (first.arrival_s, first.prompt_tokens, first.output_tokens, first.source) == (0.0, 374, 44, "azure")
    assert first.finish_reason == "stop"
    assert (first.extra, second.extra, third.extra) == ({"blocks": 3}, {}, {"blocks": "x"})
    assert [r.request_id for r in (first, second, third)] == ["azure/1", "azure/2", "azure/4"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("arrival_s,output_tokens\n0,1\n", "line 1: expected the columns arrival_s, input_tokens, output_tokens"),
        ("arrival_s,input_tokens,output_tokens\n0,1\n", "line 2: expected 3 values, got 2"),
        (
            "arrival_s,input_tokens,output_tokens\n0,1,2\n0,-1,2\n",
            "line 3: prompt_tokens: expected an integer >= 0, got -1",
        ),
        (
            "arrival_s,input_tokens,output_tokens\nsoon,1,2\n",
            "line 2: arrival_s: expected a number or null, got text 'soon'",
        ),
        ("arrival_s,input_tokens,output_tokens\nnan,1,2\n", "line 2: arrival_s: expected a number"),
        ("arrival_s,input_tokens,output_tokens\n", "expected at least one record"),
        ("", "line 1: expected the columns"),
    ],
)
def test_bad_arrivals_are_told_by_line(tmp_path, text, sentence):
    path = tmp_path / "trace.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as refusal:
        records("arrivals", path)
    assert sentence in str(refusal.value)


# chats


SHAREGPT = {
    "id": "abc",
    "conversations": [
        {"from": "human", "value": "Name a river."},
        {"from": "gpt", "value": "The Danube."},
        {"from": "human", "value": "Another one, please."},
        {"from": "gpt", "value": "The Po and the Rhine."},
    ],
}
OPENAI = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Name a river."}]},
        {"role": "assistant", "content": "The Danube."},
    ]
}
ALPACA = {"instruction": "Make it shorter.", "input": "A very long sentence.", "output": "A sentence."}


def test_each_answer_of_a_conversation_is_a_record_of_one_group(write_lines):
    first, second = records("chat", write_lines(SHAREGPT), tokenizer=WordTokenizer())
    assert (first.prompt, first.turns, first.output_tokens) == ("Name a river.", 0, 2 + 1)  # and end of sequence
    assert (second.prompt, second.turns, second.output_tokens) == ("Another one, please.", 1, 5 + 1)
    assert second.prompt_tokens == 3 + 2 + 3  # what was said before is in the prompt too
    assert first.group == second.group
    assert first.finish_reason == "stop"


def test_openai_and_alpaca_shapes_are_read_from_lines_and_arrays(write_lines, tmp_path):
    (openai,) = records("chat", write_lines(OPENAI))
    assert openai.prompt == "Name a river."
    array = tmp_path / "alpaca.json"
    array.write_text(json.dumps([ALPACA, {**ALPACA, "input": "", "instruction": "Say hello."}]), encoding="utf-8")
    first, second = records("chat", array)
    assert first.prompt == "Make it shorter.\n\nA very long sentence."
    assert second.prompt == "Say hello."


def test_estimated_lengths_are_marked(write_lines):
    path = write_lines(OPENAI)
    assert records("chat", path)[0].extra == {"tokens_estimated": True}
    assert records("chat", path, tokenizer=WordTokenizer())[0].extra == {}


def test_answers_at_the_cap_are_censored(write_lines):
    first, second = records("chat", write_lines(SHAREGPT), tokenizer=WordTokenizer(), max_new_tokens=4)
    assert (first.finish_reason, first.output_tokens) == ("stop", 2 + 1)
    assert (second.finish_reason, second.output_tokens, second.max_new_tokens) == ("length", 4, 4)


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"text": "plain"}, "expected an object with `conversations`"),
        ([1], "expected an object with a conversation, got list"),
        ({"conversations": [{"from": "human"}]}, "conversations[0]: expected what was said in `content` or `value`"),
        ({"conversations": [{"value": "hi"}]}, "conversations[0]: expected `role` and `content`, or `from` and"),
        ({"messages": ["hi"]}, "messages[0]: expected an object with a role and what was said, got text"),
    ],
)
def test_what_is_no_conversation_is_told_by_line(write_lines, entry, sentence):
    with pytest.raises(InputError) as refusal:
        records("chat", write_lines(SHAREGPT, entry))
    assert f"line 2: {sentence}" in str(refusal.value)


# Spec-Bench


def answer(**choice):
    return {"question_id": 81, "category": "writing", "model_id": "vicuna", "choices": [{"index": 0, **choice}]}


def test_accept_lengths_are_cut_into_turns_by_what_they_add_up_to(write_lines):
    path = write_lines(
        answer(
            new_tokens=[6, 5],
            decoding_steps=[3, 2],
            wall_time=[0.5, 0.4],
            accept_lengths=[1, 2, 3, 4, 1],
            turns=["", ""],
        )
    )
    first, second = records("spec-bench", path)
    assert (first.accept_lengths, second.accept_lengths) == ((1, 2, 3), (4, 1))
    assert first.correct_drafts_histogram == (1, 1, 1)
    assert second.correct_drafts_histogram == (1, 0, 0, 1)
    assert second.accept_length == 2.5
    assert (first.e2e_s, first.group, first.category, first.model) == (0.5, "spec-bench/81", "writing", "vicuna")
    assert (first.turns, second.turns) == (0, 1)


def test_step_counts_cut_them_where_the_sums_do_not(write_lines):
    path = write_lines(answer(new_tokens=[5, 5], decoding_steps=[2, 1], accept_lengths=[1, 2, 3]))
    first, second = records("spec-bench", path)
    assert (first.accept_lengths, second.accept_lengths) == ((1, 2), (3,))


def test_lengths_that_cannot_be_told_apart_are_left_out_and_no_row_is_lost(write_lines):
    path = write_lines(answer(new_tokens=[5, 5], decoding_steps=[9, 9], accept_lengths=[1, 2, 3]))
    first, second = records("spec-bench", path)
    assert first.accept_lengths is second.accept_lengths is None
    assert (first.verify_steps, first.output_tokens) == (9, 5)


def test_the_question_file_adds_the_prompts_and_the_cap_censors(write_lines):
    answers = write_lines(answer(new_tokens=[1027], decoding_steps=[3], accept_lengths=[1000, 20, 7]))
    questions = write_lines({"question_id": 81, "turns": ["Write a poem."]}, name="question.jsonl")
    (record,) = records("spec-bench", answers, questions=questions, tokenizer=WordTokenizer())
    assert (record.prompt, record.prompt_tokens) == ("Write a poem.", 3)
    assert (record.finish_reason, record.output_tokens) == ("length", 1024)


@pytest.mark.parametrize("line", [{"a": 1}, {"question_id": 1, "choices": [{}]}, {"question_id": 1, "choices": 5}])
def test_what_is_no_answer_is_refused(write_lines, line):
    with pytest.raises(InputError, match=r"line 1: .*choices.*expected"):
        records("spec-bench", write_lines(line))


# records


def test_records_of_several_files_become_one_trace(write_lines, good_row, make_record, tmp_path):
    lines = write_lines({**good_row, "source": "mine"}, {**good_row, "request_id": "r2"})
    write_records(tmp_path / "more.parquet", [make_record("r3")])
    out = tmp_path / "out.jsonl.zst"
    arguments = [
        "import",
        "records",
        str(lines),
        str(tmp_path / "more.parquet"),
        "--out",
        str(out),
        "--source",
        "theirs",
    ]
    assert run(arguments) == 0
    assert [(r.request_id, r.source) for r in read_records(out)] == [("r1", "mine"), ("r2", "theirs"), ("r3", "theirs")]


def test_an_id_must_not_come_again_in_another_file(write_lines, good_row):
    first, second = write_lines(good_row, name="a.jsonl"), write_lines(good_row, name="b.jsonl")
    with pytest.raises(InputError, match=r"b\.jsonl: line 1: request_id: expected a name that no earlier row has"):
        list(import_records("records", [first, second]))


def test_bad_rows_are_counted_over_all_files(write_lines, good_row):
    first = write_lines(good_row, b"broken", name="a.jsonl")
    second = write_lines({**good_row, "request_id": "r2"}, b"broken", name="b.jsonl")
    told = []
    assert len(list(import_records("records", [first, second], tolerance=Tolerance(2, told.append)))) == 2
    assert len(told) == 2
    with pytest.raises(InputError, match=r"b\.jsonl: line 2"):
        list(import_records("records", [first, second], tolerance=Tolerance(1)))


# SGLang's own files, as SGLang wrote them

METRICS = FIXTURES / "sglang-request-metrics-20261201_23.log"
BENCH = FIXTURES / "sglang-bench.jsonl"


def test_metrics_of_sglang_tell_lengths_ends_drafts_and_times():
    found = records("sglang-metrics", METRICS, model="smollm2", draft="STANDALONE")
    assert len(found) == 10
    chat, short, raw, single, *_ = found
    assert (chat.prompt_tokens, chat.output_tokens, chat.finish_reason, chat.max_new_tokens) == (34, 24, "length", 24)
    assert (short.output_tokens, short.finish_reason, short.censored) == (11, "stop", False)
    assert (short.verify_steps, short.correct_drafts_histogram, short.max_correct_drafts) == (4, (1, 1, 1, 1), 3)
    assert short.accept_length == pytest.approx(2.5)
    assert short.queue_s == pytest.approx(0.00085, abs=1e-5)
    assert 0 < short.ttft_s < short.e2e_s
    assert (raw.prompt, raw.temperature) == ("Name three colours.", 0.0)
    assert single.verify_steps is None  # ended with its first token: nothing was drafted
    assert {r.model for r in found} == {"smollm2"}


def test_arrivals_count_from_the_first_request_whatever_the_order():
    arrivals = [r.arrival_s for r in records("sglang-metrics", METRICS)]
    assert min(arrivals) == 0.0
    assert arrivals != sorted(arrivals)  # requests are written as they end
    assert arrivals[1] == pytest.approx(15.42, abs=0.01)


def test_chat_requests_have_no_text_without_a_tokenizer(tmp_path, capsys):
    out = tmp_path / "trace.parquet"
    assert run(["import", "sglang-metrics", str(FIXTURES), "--out", str(out)]) == 0
    assert [r.prompt is None for r in read_records(out)] == [True, True, *[False] * 6, True, True]
    assert "give --tokenizer" in capsys.readouterr().err


def test_bad_metrics_are_told_by_line(write_lines):
    with pytest.raises(InputError, match="line 1: request_parameters: expected the request as JSON text"):
        records("sglang-metrics", write_lines({"id": "a"}))
    with pytest.raises(InputError, match="line 1: meta_info: expected finish_reason"):
        records("sglang-metrics", write_lines({"id": "a", "request_parameters": "{}"}))
    with pytest.raises(InputError, match="expected files named sglang-request-metrics"):
        list(import_records("sglang-metrics", [Path(__file__).parent]))


def test_a_request_aborted_in_the_queue_is_censored_with_its_prompt_length(write_lines):
    asked = json.dumps({"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 9}})
    line = {
        "id": "a",
        "request_parameters": asked,
        "finish_reason": {"type": "abort", "message": "x"},
        "e2e_latency": 2.0,
    }
    (record,) = records("sglang-metrics", write_lines(line))
    assert (record.finish_reason, record.prompt_tokens, record.output_tokens) == ("abort", 3, 0)


def test_forced_lengths_of_the_benchmark_are_censored(tmp_path):
    lines = BENCH.read_text().splitlines()
    forced = tmp_path / "forced.jsonl"
    forced.write_text(lines[0] + "\n")
    found = records("sglang-bench", forced)
    assert [(r.prompt_tokens, r.output_tokens, r.finish_reason) for r in found] == [
        (6, 12, "length"),
        (6, 12, "length"),
        (8, 12, "length"),
    ]
    assert {(r.model, r.draft, r.max_correct_drafts) for r in found} == {
        ("smollm2-135m-instruct-v1", "STANDALONE:smollm2-135m-instruct-first24-v1", 3)
    }
    assert all(0 < r.ttft_s < r.e2e_s for r in found)


def test_natural_ends_of_the_chat_backend_are_counted_again(tmp_path):
    chat = tmp_path / "chat.jsonl"
    chat.write_text(BENCH.read_text().splitlines()[1] + "\n")
    with pytest.raises(InputError, match=r"line 1: output_lens: expected the lengths produced.*add --tokenizer"):
        records("sglang-bench", chat, natural_ends=True)
    first, second = records("sglang-bench", chat, natural_ends=True, tokenizer=WordTokenizer())
    assert (first.output_tokens, first.finish_reason) == (29, "stop")  # 28 words and the end; 40 were asked for
    assert second.output_tokens < 40


def test_a_benchmark_without_details_or_with_uneven_lists_is_refused(write_lines):
    with pytest.raises(InputError, match="line 1: input_lens, output_lens: expected a list each"):
        records("sglang-bench", write_lines({"backend": "sglang", "completed": 3}))
    with pytest.raises(InputError, match="line 1: ttfts: expected one value per request"):
        records("sglang-bench", write_lines({"input_lens": [1, 2], "output_lens": [1, 2], "ttfts": [0.1]}))


def test_a_failed_request_of_a_benchmark_is_an_abort(write_lines):
    line = {
        "input_lens": [5],
        "output_lens": [0],
        "ttfts": [0.0],
        "itls": [[]],
        "errors": ["503"],
        "generated_texts": [""],
    }
    (record,) = records("sglang-bench", write_lines(line))
    assert (record.finish_reason, record.output_tokens) == ("abort", 0)
