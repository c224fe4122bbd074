"""Any client can send any text: the time to take it apart grows with its length and no faster."""

from itertools import product
from time import process_time

import pytest

from laps_sd.data import canonical
from laps_sd.predictors.features.lexical import lexical_features

#: How each family's text starts, and every literal and repetition that its patterns hold.
FAMILIES = {
    "ChatML": ("<|im_start|>a\n", ["<|im_start|>user\n", "<|im_end|>", "<|im_start|>"]),
    "Llama 3": (
        "<|start_header_id|>a",
        ["<|begin_of_text|>", "<|start_header_id|>user<|end_header_id|>", "<|eot_id|>", "<|start_header_id|>"],
    ),
    "Llama 4": (
        "<|header_start|>a", ["<|begin_of_text|>", "<|header_start|>user<|header_end|>", "<|eot|>", "<|header_start|>"],
    ),
    "Gemma": ("<start_of_turn>a\n", ["<bos>", "<start_of_turn>user\n", "<end_of_turn>", "<start_of_turn>"]),
    "gpt-oss": ("<|start|>a", ["<|start|>user<|message|>", "<|end|>", "<|start|>"]),
    "DeepSeek": ("<｜User｜>", ["<｜begin▁of▁sentence｜>", "<|User|>", "<｜Assistant｜>", "<｜"]),
    "Phi 3": ("<|user|>\n", ["<|user|>\n", "<|end|>", "</s>", "<|assistant|>", "<|system|>\n"]),
    "Llama 2": ("<s>[INST]", ["<s>", "[INST]", "<<SYS>>", "<</SYS>>", "[/INST]"]),
    "Vicuna": ("A chat between USER: ", ["A chat between ", "USER: ", "ASSISTANT:", " ASSISTANT"]),
    "none": ("", ["\r\n", "\ue000", "e\u0315\u0300", "\u0315\u0300", "word "]),
}  # fmt: skip
QUICK = 0.02  # seconds for 60 kB; what is quadratic took 1.5 s and more
CASES = {
    f"{name}: {''.join(tokens)!r}": (start, "".join(tokens))
    for name, (start, own) in FAMILIES.items()
    for repeat in (1, 2, 3)
    for tokens in product([*own, " ", "\n"], repeat=repeat)
}


def seconds(start: str, token: str, size: int) -> float:
    text = start + token * (size // len(token))
    began = process_time()
    canonical(text=text)
    lexical_features(text)
    return process_time() - began


@pytest.mark.parametrize("family", FAMILIES)
def test_the_time_grows_with_the_length_of_the_text_and_no_faster(family):
    slow = {}
    for name, (start, token) in CASES.items():
        # What a family's texts start with is also left out: a pattern that fails must fail at once.
        for head in {start, ""} if name.startswith(f"{family}: ") else ():
            if seconds(head, token, 60_000) > QUICK:
                part = min(seconds(head, token, 15_000) for _ in range(3))
                whole = min(seconds(head, token, 60_000) for _ in range(3))
                if whole > QUICK and whole > 8 * part:  # of four times the text; what is quadratic takes 16 times
                    slow[name] = (part, whole)
    assert slow == {}


def test_a_system_prompt_ends_before_the_turn_does():
    text = "[INST]<<SYS>>\nBe brief.[/INST] Yes. [INST] Name a river <</SYS>> please [/INST]"
    assert canonical(text=text) == ("Name a river <</SYS>> please", 1)
    assert canonical(text="[INST]<<SYS>>[/INST]" * 8000) == ("<<SYS>>", 7999)
