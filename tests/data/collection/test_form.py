"""What a prompt file says of the form of an answer goes to the server, and into the record as the server sees it."""

import pytest

from laps_sd.data import Prompt
from laps_sd.data.collection.form import Form, read_form
from laps_sd.data.collection.prompt_file import read_prompts
from laps_sd.data.collection.send import rendered
from laps_sd.data.meta_info import constraint_of
from laps_sd.errors import InputError

SCHEMA = {"type": "object", "properties": {"place": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}


@pytest.mark.parametrize(
    ("row", "sampling"),
    [
        ({"regex": "(yes|no)"}, {"regex": "(yes|no)"}),
        ({"ebnf": 'root ::= "a"'}, {"ebnf": 'root ::= "a"'}),
        ({"json_schema": SCHEMA}, {"json_schema": '{"type":"object","properties":{"place":{"type":"string"}}}'}),
        ({"response_format": {"type": "json_object"}}, {"json_schema": '{"type":"object"}'}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array"}}}},
            {"json_schema": '{"type":"array"}'},
        ),
        ({"constraint": "regex:[0-9]+"}, {"regex": "[0-9]+"}),
        ({"constraint": "regex:" + "x" * 3000}, {}),
        ({"response_format": {"type": "text"}}, {}),
        ({"prompt": "plain"}, {}),
    ],
)
def test_a_constraint_is_read_whatever_it_is_written_as(row, sampling):
    assert read_form(row).of_generate() == sampling


@pytest.mark.parametrize(
    "row",
    [
        {"regex": "a", "json_schema": SCHEMA},
        {"json_schema": "{"},
        {"json_schema": "[]"},
        {"regex": {"a": 1}},
        {"response_format": "json"},
        {"response_format": {"type": "json_schema"}},
        {"tools": {"a": 1}},
        {"tools": "["},
        {"tool_choice": 3},
        {"chat_template_kwargs": "x"},
        {"chat_template_kwargs": {"tokenize": True}},
    ],
)
def test_what_cannot_be_sent_is_refused_by_its_name(row, write_lines):
    with pytest.raises(InputError, match=f"line 1: .*{list(row)[-1]}"):
        read_prompts(write_lines({"prompt": "Hello", **row}, name="prompts.jsonl"))


@pytest.mark.parametrize(
    "row",
    [
        {"regex": "(yes|no)"},
        {"json_schema": SCHEMA},
        {"structural_tag": {"format": {"type": "any_text"}}},
    ],
)
def test_both_endpoints_are_told_the_same(row):
    form = read_form(row)
    body = form.of_chat()
    asked = {k: v for k, v in body.items() if k in ("regex", "ebnf")}
    asked_format = body.get("response_format", {})
    if asked_format.get("type") == "json_schema":
        asked["json_schema"] = asked_format["json_schema"]["schema"]
    elif asked_format:
        asked["structural_tag"] = {k: v for k, v in asked_format.items() if k != "type"}
    assert constraint_of(asked) == constraint_of(form.of_generate()) == form.chat_fields()["constraint"]


def test_tools_and_thinking_go_to_the_chat_endpoint():
    form = read_form({"tools": [TOOL, TOOL], "tool_choice": "auto", "thinking": False})
    assert form.of_chat() == {
        "tools": [TOOL, TOOL],
        "tool_choice": "auto",
        "chat_template_kwargs": {"enable_thinking": False},
    }
    assert form.chat_fields() == {"constraint": None, "tools": 2, "thinking": False}


@pytest.mark.parametrize(
    ("choice", "tools", "constraint"),
    [
        ("auto", 2, None),
        ("none", None, None),
        ("required", 2, "json_schema:"),
        ({"type": "function", "function": {"name": "weather"}}, 1, "json_schema:"),
    ],
)
def test_a_choice_of_tools_is_a_constraint_where_the_server_makes_one_of_it(choice, tools, constraint):
    fields = read_form({"tools": [TOOL, TOOL], "tool_choice": choice}).chat_fields()
    assert (fields["tools"], fields["constraint"]) == (tools, constraint)


def test_a_template_is_given_tools_and_its_keywords():
    class Tokenizer:
        def apply_chat_template(self, conversation, **keywords):
            return f"{conversation[-1]['content']} {sorted(keywords)}"

    form = Form(tools=(TOOL,), template={"enable_thinking": True})
    text = rendered(Tokenizer(), Prompt("a", "Hello", form=form))
    assert text == "Hello ['add_generation_prompt', 'enable_thinking', 'tokenize', 'tools']"


def test_a_trace_asks_again_what_it_can_say():
    form = read_form({"prompt": "Hello", "constraint": 'json_schema:{"type":"object"}', "tools": 3, "thinking": True})
    assert form.of_generate() == {"json_schema": '{"type":"object"}'}
    assert form.tools == (), "how many there were does not tell which"
    assert form.thinking is True
