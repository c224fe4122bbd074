"""One prompt through /generate, completions and chat gives features the same text."""

from datetime import date, timedelta
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps_sd.data import canonical, canonical_prompt
from laps_sd.data.canonical import WINDOW_IDS

ASKED = "List three rivers.\nOne per line, please: übermäßig 雨"
EARLIER = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi! How can I help?"}]


class CharTokenizer:
    """Ids are code points; the chat template is the one given, in the manner of Hugging Face tokenizers."""

    def __init__(self, before, after):
        self.before, self.after = before, after

    def encode(self, text, *, add_special_tokens=True):
        return [ord(char) for char in text]

    def decode(self, token_ids, *, skip_special_tokens=False):
        return "".join(map(chr, token_ids))

    def apply_chat_template(self, conversation, *, tokenize=True, add_generation_prompt=False):
        return self.before + "".join(m["content"] for m in conversation) + self.after


TEMPLATED = {
    "ChatML": "<|im_start|>system\nYou are SmolLM.<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n",
    "ChatML without system": "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n",
    "Llama 3": (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nToday is Friday.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    "Llama 4": (
        "<|begin_of_text|><|header_start|>user<|header_end|>\n\n{}<|eot|><|header_start|>assistant<|header_end|>\n\n"
    ),
    "Gemma": "<bos><start_of_turn>user\n{}<end_of_turn>\n<start_of_turn>model\n",
    "gpt-oss": ("<|start|>system<|message|>You are ChatGPT.<|end|><|start|>user<|message|>{}<|end|><|start|>assistant"),
    "DeepSeek": "<｜begin▁of▁sentence｜>Be helpful.<｜User｜>{}<｜Assistant｜>",
    "Phi 3": "<|system|>\nBe helpful.<|end|>\n<|user|>\n{}<|end|>\n<|assistant|>\n",
    "Zephyr": "<|system|>\nBe kind.</s>\n<|user|>\n{}</s>\n<|assistant|>\n",
    "Llama 2": "<s>[INST] <<SYS>>\nBe helpful.\n<</SYS>>\n\n{} [/INST]",
    "Mistral": "<s>[INST] {} [/INST]",
    "Vicuna": "A chat between a curious user and an assistant. USER: {} ASSISTANT:",
}


@pytest.mark.parametrize("name", TEMPLATED)
def test_the_template_is_taken_off_whatever_its_family(name):
    assert canonical_prompt(text=TEMPLATED[name].format(ASKED)) == ASKED


def test_text_messages_and_token_ids_agree():
    text = TEMPLATED["ChatML"].format(ASKED)
    tokenizer = CharTokenizer(*TEMPLATED["ChatML"].split("{}"))
    expected = canonical(text=ASKED)
    assert canonical(messages=[{"role": "user", "content": ASKED}]) == expected
    assert canonical(text=text) == expected
    assert canonical(token_ids=tokenizer.encode(text), tokenizer=tokenizer) == expected


def test_a_template_of_no_known_family_is_taken_off_with_its_tokenizer():
    tokenizer = CharTokenizer("### Human: ", "\n### Robot:")
    text = tokenizer.apply_chat_template([{"role": "user", "content": ASKED}], tokenize=False)
    assert canonical_prompt(token_ids=tokenizer.encode(text), tokenizer=tokenizer) == ASKED
    assert canonical_prompt(text=ASKED, tokenizer=tokenizer) == ASKED


def test_a_tokenizer_without_a_template_changes_nothing():
    assert canonical_prompt(text=ASKED, tokenizer=CharTokenizer("", "")) == ASKED


def test_the_template_is_rendered_once_a_day_and_not_for_every_text(monkeypatch):
    class Counting(CharTokenizer):
        rendered = 0

        def apply_chat_template(self, conversation, **options):
            self.rendered += 1
            return super().apply_chat_template(conversation, **options)

    tokenizer = Counting("### Human: ", "\n### Robot:")
    for text in ("### Human: Hi\n### Robot:", "Hi", " Hi "):
        assert canonical_prompt(text=text, tokenizer=tokenizer) == "Hi"
    assert tokenizer.rendered == 1
    tokenizer.chat_template, tokenizer.before = "another", "### Person: "
    assert canonical_prompt(text="### Person: Hi\n### Robot:", tokenizer=tokenizer) == "Hi"

    class Tomorrow(date):
        @classmethod
        def today(cls):
            return date.today() + timedelta(days=1)

    monkeypatch.setattr(import_module("laps_sd.data.canonical"), "date", Tomorrow)  # not the function
    tokenizer.before = "### 2 January\n### Person: "
    assert canonical_prompt(text="### 2 January\n### Person: Hi\n### Robot:", tokenizer=tokenizer) == "Hi"


def test_a_template_longer_than_the_text_is_not_taken_off():
    assert canonical_prompt(text="ababa", tokenizer=CharTokenizer("aba", "baba")) == "ababa"


@pytest.mark.parametrize("size", [30_000, 39_000, 60_000, 400_000])
def test_a_long_prompt_is_the_same_through_every_endpoint_and_decoded_only_in_part(size):
    class Counting(CharTokenizer):
        decoded = 0

        def decode(self, token_ids, **options):
            self.decoded += len(token_ids)
            return super().decode(token_ids, **options)

    asked = "Summarise in 50 words:\n" + "caf\u00e9 " * (size // 5) + "\nOnly the facts."
    tokenizer = Counting(*TEMPLATED["ChatML"].split("{}"))
    text = TEMPLATED["ChatML"].format(asked)
    expected = canonical(messages=[{"role": "user", "content": asked}])
    assert canonical(text=text, tokenizer=tokenizer) == canonical(text=asked) == expected
    assert canonical(token_ids=tokenizer.encode(text), tokenizer=tokenizer) == expected
    assert canonical(token_ids=tokenizer.encode(asked), tokenizer=tokenizer) == expected
    assert tokenizer.decoded <= 2 * 2 * WINDOW_IDS
    assert canonical(text=expected.text) == expected


def test_only_the_last_user_turn_counts_and_earlier_ones_are_counted():
    messages = [{"role": "system", "content": "Be brief."}, *EARLIER, {"role": "user", "content": ASKED}]
    assert canonical(messages=messages) == (ASKED, 1)
    templated = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
    assert canonical(text=templated + "<|im_start|>assistant\n") == (ASKED, 1)


def test_the_system_prompt_makes_no_difference():
    alone = canonical(messages=[{"role": "user", "content": ASKED}])
    assert canonical(messages=[{"role": "system", "content": "x" * 99}, {"role": "user", "content": ASKED}]) == alone


def test_parts_of_a_message_are_joined_and_pictures_left_out():
    parts = [
        {"type": "text", "text": "What is"},
        {"type": "image_url", "image_url": {}},
        {"type": "text", "text": "this?"},
    ]
    assert canonical_prompt(messages=[{"role": "user", "content": parts}]) == "What is\nthis?"


@pytest.mark.parametrize("messages", [[], [{"role": "system", "content": "x"}], [{"role": "user", "content": None}]])
def test_no_user_turn_gives_an_empty_prompt(messages):
    assert canonical(messages=messages) == ("", 0)


def test_spelling_variants_of_unicode_and_line_ends_are_one_prompt():
    assert canonical_prompt(text="  Cafe\u0301\r\nau lait \n") == canonical_prompt(text="Caf\u00e9\nau lait")


@given(st.text())
def test_a_canonical_prompt_stays_as_it_is(text):
    once = canonical_prompt(messages=[{"role": "user", "content": text}])
    assert canonical_prompt(messages=[{"role": "user", "content": once}]) == once


def test_what_is_not_one_prompt_is_refused():
    with pytest.raises(ValueError, match="exactly one of text, messages and token_ids"):
        canonical_prompt()
    with pytest.raises(ValueError, match="exactly one"):
        canonical_prompt(text="a", messages=[])
    with pytest.raises(ValueError, match="need a tokenizer"):
        canonical_prompt(token_ids=[1, 2])
