"""A tokenizer of one token per ASCII character."""

import pytest


class Letters:
    """As much of a Hugging Face tokenizer as counting needs."""

    def __len__(self):
        return 128

    def encode(self, text, *, add_special_tokens=True):
        return [ord(letter) for letter in text]

    def decode(self, token_ids, *, skip_special_tokens=False):
        return "".join(map(chr, token_ids))

    def apply_chat_template(self, conversation, *, tokenize=True, add_generation_prompt=False):
        return "".join(turn["content"] for turn in conversation)


@pytest.fixture
def letters() -> Letters:
    return Letters()
