"""The form in which texts are compared."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps_sd.data import normal
from laps_sd.data.normal import _MARKS_TOO, HEAD_CHARS, TAIL_CHARS, normal_form


def test_a_text_is_composed_with_line_feeds_and_without_blank_ends():
    assert normal_form("  Cafe\u0301\r\nau\rlait \n") == "Caf\u00e9\nau\nlait"


def test_no_script_loses_a_mark():
    text = "Tiê\u0301ng Viê\u0323t, שָׁלוֹם, नमस्ते, e\u0315\u0300\u0327"
    assert normal_form(text) == unicodedata.normalize("NFC", text)


@given(
    st.text(st.sampled_from("ae \r\n\u0300\u0315\u0327\u0344\u0f71\u0f73\u0f81\u1100\u1161\u11a8\ufb2c"), max_size=90)
)
def test_what_is_in_normal_form_stays_as_it_is(text):
    once = normal_form(text)
    assert normal_form(once) == once


def test_every_character_that_comes_apart_into_marks_is_counted_as_one():
    chars = map(chr, range(sys.maxunicode + 1))
    hidden = {
        c for c in chars if not unicodedata.combining(c) and unicodedata.combining(unicodedata.normalize("NFD", c)[0])
    }
    assert hidden == _MARKS_TOO


@pytest.mark.parametrize("marks", ["\u0315\u0300", "\u0f73", "\u0f81", "\u0344\u0327"])
def test_a_heap_of_marks_does_not_become_a_heap_of_work(marks):
    """Composing sorts them by insertion: the result is short because few of them are kept."""
    assert len(normal_form("a" + marks * 10_000 + "b")) < 100


@pytest.mark.parametrize("size", [32_000, 32_001, 127_000, 129_000, 500_000])
@pytest.mark.parametrize("unit", ["word ", "e\u0301\u0323\r\n", "\u1112\u1161\u11ab", "\ufb2c"])
def test_a_long_text_keeps_its_ends_and_does_not_change_again(unit, size):
    text = "Summarise: " + unit * (size // len(unit)) + " in 50 words"
    once = normal_form(text)
    assert len(once) <= HEAD_CHARS + TAIL_CHARS
    assert once.startswith("Summarise: ")
    assert once.endswith(" in 50 words")
    assert normal_form(once) == once
    assert normal_form(unicodedata.normalize("NFC", text)) == once, "whoever composed it first"


def test_how_much_is_composed_does_not_grow_with_the_text(monkeypatch):
    seen = []
    real = unicodedata.is_normalized
    monkeypatch.setattr(
        normal.unicodedata, "is_normalized", lambda form, text: seen.append(len(text)) or real(form, text)
    )
    normal_form("word " * 1_000_000)
    assert sum(seen) <= 4 * (HEAD_CHARS + TAIL_CHARS)
