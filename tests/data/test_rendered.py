"""What a rendered prompt shows of tools and of thinking, as the templates of the model families write them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps_sd.data.canonical import canonical, read_rendered
from laps_sd.data.rendered import Shown, shown_in, thinking_of

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
TIME = {"type": "function", "function": {"name": "time", "parameters": {"type": "object", "properties": {}}}}
QWEN = (
    "<|im_start|>system\nYou may call functions.\n<tools>\n{}\n</tools><|im_end|>\n"
    "<|im_start|>user\nHow warm is it?<|im_end|>\n<|im_start|>assistant\n"
)
LLAMA = (
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nGiven the following functions\n\n{}\n\n"
    "How warm is it?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
)
HARMONY = (
    "<|start|>developer<|message|># Tools\n\n## functions\n\nnamespace functions {\n\n// How warm\n"
    "type weather = (_: {\nplace: string,\n}) => any;\n\ntype time = () => any;\n\n} // namespace functions<|end|>"
    "<|start|>user<|message|>How warm is it?<|end|><|start|>assistant"
)


@pytest.mark.parametrize(
    "text",
    [
        QWEN.replace("{}", "\n".join(json.dumps(tool) for tool in (WEATHER, TIME))),
        QWEN.replace("{}", "\n".join(json.dumps(tool, separators=(",", ":")) for tool in (WEATHER, TIME))),
        LLAMA.replace("{}", "\n\n".join(json.dumps(tool, indent=4) for tool in (WEATHER, TIME))),
        QWEN.replace("{}", "\n<function>\n<name>weather</name>\n</function>\n<function>\n<name>time</name>"),
        HARMONY,
    ],
    ids=["qwen", "without blanks", "llama", "coder", "gpt-oss"],
)
def test_tools_are_counted_as_the_template_writes_them(text):
    assert shown_in(text).tools == 2


@pytest.mark.parametrize(
    ("end", "thinking"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("<｜Assistant｜></think>", False),
        ("]<]minimax[>[<mm:think>", True),
        ("<|im_start|>assistant\n", None),
        ("I think", None),
    ],
)
def test_the_end_of_a_prompt_tells_whether_to_think(end, thinking):
    assert shown_in("<|im_start|>user\nHello<|im_end|>\n" + end).thinking is thinking


def test_what_the_prompt_leaves_open_the_server_may_know():
    assert thinking_of(Shown(thinking=False), True) is False
    assert thinking_of(Shown(), True) is True
    assert thinking_of(Shown(), False) is None, "a server without a reasoning parser says so of every request"


@given(st.text(max_size=300))
def test_any_text_shows_something_or_nothing_and_its_prompt_is_the_canonical_one(text):
    prompt, shown = read_rendered(text=text)
    assert prompt == canonical(text=text)
    assert shown.tools is None or shown.tools > 0


def test_a_huge_text_is_not_searched_to_its_end():
    assert shown_in("x" * 200_000 + json.dumps(WEATHER)).tools is None
