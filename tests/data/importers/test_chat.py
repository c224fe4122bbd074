"""Conversations as public files have them: what a model produced is counted, what cannot be used is said."""

import json

import pytest

from laps_sd.cli import run
from laps_sd.data import read_records
from laps_sd.data.importers import ImportOptions, import_records, importer_class
from laps_sd.data.importers.options import count_tokens
from laps_sd.errors import InputError


class WordTokenizer:
    """A token a word, and a chat template of two words a turn."""

    chat_template = "yes"

    def encode(self, text, *, add_special_tokens=True):
        return text.split()

    def apply_chat_template(self, conversation, *, tokenize=True, add_generation_prompt=False):
        turns = [f"<{m['role']}> {m['content']} </{m['role']}>" for m in conversation]
        return " ".join([*turns, "<assistant>"])


def user(text):
    return {"role": "user", "content": text}


def answer(content=None, **fields):
    return {"role": "assistant", "content": content, **fields}


def call(name, arguments):
    return {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.fixture
def read(tmp_path):
    def read(*messages, tokenizer=None, **entry):
        path = tmp_path / "chats.jsonl"
        path.write_text(json.dumps({"messages": list(messages), **entry}) + "\n", encoding="utf-8")
        importer = importer_class("chat")(ImportOptions(tokenizer=tokenizer))
        return list(importer.records([path])), importer.remarks()

    return read


def words(read, *messages, **entry):
    found, _ = read(*messages, tokenizer=WordTokenizer(), **entry)
    return [record.output_tokens - 1 for record in found]  # without the end of sequence


@pytest.mark.parametrize(
    ("content", "kind"), [({"answer": "Four words of text."}, "an object"), (5, "a number"), (True, "a boolean")]
)
def test_a_content_that_is_no_text_is_refused_by_name_and_type(read, content, kind):
    with pytest.raises(InputError) as refusal:
        read(user("Which?"), answer(content))
    assert f"line 1: messages[1].content: expected text or a list of parts, got {kind}" in str(refusal.value)


def test_a_part_that_is_no_part_is_refused(read):
    with pytest.raises(InputError, match=r"messages\[1\].content\[1\]: expected text or a part with `type` and `text`"):
        read(user("Which?"), answer([{"type": "text", "text": "This."}, 7]))


def test_text_parts_are_counted_and_others_said(read):
    picture = {"type": "image_url", "image_url": {"url": "data:"}}
    found, remarks = read(
        {"role": "user", "content": [picture, {"type": "text", "text": "What is it?"}]},
        answer([{"type": "text", "text": "A red"}, {"type": "text", "text": "house."}]),
        tokenizer=WordTokenizer(),
    )
    assert (found[0].prompt, found[0].output_tokens) == ("What is it?", 3 + 1)
    assert "1 parts of type 'image_url', which hold no text, were passed over" in remarks


def test_tool_calls_are_produced_by_the_model_and_counted(read):
    messages = [
        user("Is it cold in Oslo?"),
        answer(tool_calls=[call("look_up", '{"city": "Oslo"}'), call("look_up", {"city": "Bergen"})]),
        {"role": "tool", "tool_call_id": "c", "content": "3 degrees"},
        answer("Rather cold."),
    ]
    found, _ = read(*messages, tokenizer=WordTokenizer())
    assert [r.output_tokens - 1 for r in found] == [3 + 2, 2]
    assert [r.tools for r in found] == [1, 1]
    assert found[1].prompt_tokens > found[0].prompt_tokens + 5  # the call and its result are in the second prompt
    offered, _ = read(*messages, tools=[{"type": "function"}] * 4)
    assert [r.tools for r in offered] == [4, 4]
    legacy = answer(function_call={"name": "look_up", "arguments": "{}"})
    assert words(read, user("Hm?"), legacy) == [2]


def test_parts_that_think_call_or_refuse_are_produced_too(read):
    thinking = {"type": "thinking", "thinking": "Two words.", "signature": "s"}
    using = {"type": "tool_use", "id": "t", "name": "look_up", "input": {"city": "Oslo"}}
    parts = [thinking, {"type": "text", "text": "I look."}, using]
    assert words(read, user("Cold?"), answer(parts)) == [2 + 2 + 2]
    assert words(read, user("Cold?"), answer([{"type": "refusal", "refusal": "No, thanks."}])) == [2]


def test_a_call_without_a_name_is_refused(read):
    with pytest.raises(InputError, match=r"messages\[1\].tool_calls\[0\]: expected a function with a name"):
        read(user("Hm?"), answer(tool_calls=[{"function": {}}]))


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_what_was_thought_was_produced(read, name):
    assert words(read, user("2 + 3?"), answer("5", **{name: "Two and three make five."})) == [5 + 1]


def test_the_chat_template_and_the_end_of_sequence_are_counted(read):
    (record,), remarks = read(user("one two three"), answer("four five"), tokenizer=WordTokenizer())
    assert record.prompt_tokens == 3 + 2 + 1  # <user>, </user>, and the opening of the answer
    assert record.output_tokens == 2 + 1
    assert remarks == []
    bare = type("Bare", (WordTokenizer,), {"apply_chat_template": lambda *_, **__: 1 / 0})
    (record,), remarks = read(user("one two three"), answer("four five"), tokenizer=bare())
    assert record.prompt_tokens == 3
    assert "counted without a chat template" in remarks[0]


def test_what_cannot_be_used_is_counted_and_said(tmp_path, capsys):
    chats = [
        {"conversations": [{"from": "gpt", "value": "As I said."}, {"from": "human", "value": "Why?"},
                           {"from": "gpt", "value": "Because."}]},
        {"conversations": []},
        {"conversations": [{"from": "human", "value": "Well?"}, {"from": "stranger", "value": "Yes."},
                           {"from": "gpt", "value": " "}]},
    ]  # fmt: skip
    path, out = tmp_path / "chats.json", tmp_path / "trace.jsonl"
    path.write_text(json.dumps(chats), encoding="utf-8")
    assert run(["import", "chat", str(path), "--out", str(out)]) == 0
    told = capsys.readouterr().err
    assert "1 answers without a question before them were left out" in told
    assert "1 conversations without an answer were left out" in told
    assert "1 turns of the unknown role 'stranger' were passed over" in told
    assert "1 empty answers were left out" in told
    assert [record.prompt for record in read_records(out)] == ["Why?"]


def test_a_file_of_which_nothing_can_be_used_says_why(tmp_path):
    path = tmp_path / "chats.json"
    path.write_text('[{"conversations": []}]')
    with pytest.raises(InputError, match="none that can be used; 1 conversations without an answer were left out"):
        list(import_records("chat", [path]))


def test_the_generator_of_an_answer_file_is_its_model(read):
    (record,), _ = read(user("Hm?"), answer("Yes."), generator="small-7b")
    assert record.model == "small-7b"


@pytest.mark.parametrize(
    "entry",
    [
        {"conversation": [user("Hm?"), answer("Yes.")]},
        {"conversations": [{"from": "human", "value": "Hm?"}, {"from": "gpt", "value": "Yes."}]},
        {"prompt": "Hm?", "completion": "Yes."},
        {"prompt": "Hm?", "response": "Yes."},
        {"question": "Hm?", "answer": "Yes."},
        {"instruction": "Hm?", "input": "", "output": "Yes."},
        {"system": "Be brief.", "conversations": [{"from": "human", "value": "Hm?"}, {"from": "gpt", "value": "Yes."}]},
    ],
)
def test_every_shape_gives_the_same_question(tmp_path, entry):
    path = tmp_path / "chat.jsonl"
    path.write_text(json.dumps(entry) + "\n")
    (record,) = import_records("chat", [path])
    assert (record.prompt, record.output_tokens) == ("Hm?", 3)


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("The cat sat on the mat, and nobody minded.", 8, 14),
        ("猫がマットの上に座っていた。" * 10, 90, 280),
        ("แมวนั่งอยู่บนเสื่อ" * 10, 90, 360),
        ("고양이가 매트 위에 앉았다. " * 10, 80, 260),
        ("Кошка сидела на коврике, и никто не возражал. " * 10, 100, 260),
    ],
)
def test_an_estimate_knows_scripts_without_spaces(text, least, most):
    assert least <= count_tokens(text, None) <= most
