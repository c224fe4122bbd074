"""Lexical features: what they see in a prompt, in any language, and at what cost."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps_sd.predictors.features.lexical import (
    HEAD_WORDS,
    LEXICAL_NAMES,
    TAIL_WORDS,
    asked_for,
    lexical_features,
    words_of,
)


def feature(name: str, text: str) -> float:
    return float(lexical_features(text)[LEXICAL_NAMES.index(name)])


@given(st.text(max_size=400))
def test_every_text_gives_finite_numbers(text):
    features = lexical_features(text)
    assert features.shape == (len(LEXICAL_NAMES),)
    assert np.isfinite(features).all()


def test_names_are_unique():
    assert len(set(LEXICAL_NAMES)) == len(LEXICAL_NAMES)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Write it, please!", ["write", "it", "please"]),
        ("Écris un poème", ["écris", "un", "poème"]),
        ("写诗 now", ["写", "诗", "now"]),
        ("", []),
    ],
)
def test_words_are_lower_case_and_scripts_without_spaces_give_characters(text, words):
    assert words_of(text) == words


def test_only_the_start_and_the_end_of_a_long_prompt_are_read():
    words = words_of("first " + "middle " * 5000 + "last")
    assert words[0] == "first"
    assert words[-1] == "last"
    assert len(words) <= HEAD_WORDS + TAIL_WORDS


@pytest.mark.parametrize(
    ("text", "words", "items"),
    [
        ("Explain it in 50 words.", 50, 0),
        ("Give me ten ideas", 0, 10),
        ("list 7 short examples", 0, 7),
        ("in 2 or 3 sentences", 0, 3),
        ("Write 3 paragraphs of at most 100 words", 100, 3),
        ("I was born in 1984", 0, 0),
        ("9999999999 words", 0, 0),
    ],
)
def test_the_asked_for_length_is_found(text, words, items):
    found_words, found_items, tokens, _, _ = asked_for(words_of(text))
    assert found_words == pytest.approx(np.log1p(words))
    assert found_items == pytest.approx(np.log1p(items))
    assert (tokens > 0) == (words + items > 0)


def test_bounds_on_the_asked_for_length_are_told_apart():
    assert asked_for(words_of("no more than 100 words"))[3:] == (1.0, 0.0)
    assert asked_for(words_of("at most 100 words"))[3:] == (1.0, 0.0)
    assert asked_for(words_of("at least 100 words"))[3:] == (0.0, 1.0)


def test_scripts_code_and_questions_leave_their_mark():
    assert feature("share_cjk", "用英文回答") > 0.8 / 3
    assert feature("share_greek_cyrillic", "Напиши") > 0.4
    assert feature("share_code_marks", "int main() { return 0; }") > 0.15
    assert feature("ends_question", "Is it? ") == 1.0
    assert feature("ends_question", "真的吗？") == 1.0
    assert feature("opening_write", "Write a poem") == 1.0
    assert feature("closing_no_extra", "Fix it. Do not include any explanation.") >= 2.0


def test_the_size_of_what_is_to_be_rewritten_is_a_feature_of_its_own():
    text = "Rewrite this: " + "some words here. " * 20
    assert feature("echo_bytes", text) == pytest.approx(np.log1p(len(text)))
    assert feature("echo_bytes", "Who wrote Faust?") == 0.0
