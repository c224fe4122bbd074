"""Counts of an answer: what is said of lists, lines, loops and endings, and that they are a function of the ids."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps_sd.data.progress.classes import TokenClasses
from laps_sd.data.progress.counting import (
    CHECKPOINTS,
    COUNTERS,
    checkpoints_below,
    counts_after,
    progress_of,
)

#: A small vocabulary that splits numbers into digits, as many do.
PIECES = [
    *"0123456789",
    "\n",
    "\n\n",
    " ",
    ".",
    ")",
    ":",
    ",",
    "-",
    "*",
    "**",
    "#",
    "|",
    "```",
    " five",
    " word",
    " end",
]
PIECES += [" hope", " I", " sorry", "  "]
CLASSES = TokenClasses.of_texts(PIECES)
_SPLIT = re.compile("|".join(re.escape(piece) for piece in sorted(PIECES, key=len, reverse=True)))


def ids_of(text: str) -> np.ndarray:
    """The ids of a text over the small vocabulary."""
    assert "".join(_SPLIT.findall(text)) == text
    return np.array([PIECES.index(piece) for piece in _SPLIT.findall(text)])


def counted(text: str) -> dict[str, int]:
    return dict(zip(COUNTERS, counts_after(ids_of(text), CLASSES).tolist(), strict=True))


def test_a_numbered_list_is_counted_with_its_places_and_its_largest_number():
    found = counted(" word five word:\n\n1. word\n2. word word\n12) word")
    assert found["numbered_items"] == 3
    assert found["largest_number"] == 12
    assert (found["first_item"], found["item_before_last"], found["last_item"]) == (6, 10, 15)  # from 1
    assert found["announced_items"] == 5
    assert found["since_line"] == 4


def test_a_number_inside_a_line_is_no_item_and_a_year_announces_nothing():
    found = counted(" word 1. word 1920 word")
    assert found["numbered_items"] == 0
    assert found["announced_items"] == 0
    assert counted(" word 7 word")["announced_items"] == 7


def test_bold_numbers_and_bullets_start_items_too():
    found = counted("**1. word**\n- word\n  - word\n* word")
    assert found["numbered_items"] == 1
    assert found["bullets"] == 3
    assert found["indented_bullets"] == 1
    assert found["bold_lines"] == 1


def test_headings_tables_and_fences_are_counted():
    found = counted("# word\n| word | word |\n| word |\n```\n word\n```")
    assert (found["headings"], found["table_lines"], found["fence"]) == (1, 2, 2)
    assert found["bar"] == 5


def test_the_end_of_what_was_said_is_known():
    found = counted(" word word. I hope word.")
    assert found["at_sentence_end"] == 1
    assert found["since_sentence"] == 0
    assert found["sentence_end"] == 2
    assert found["recent_closing"] == 1
    assert found["first_person"] == 1
    assert counted(" word:")["at_colon"] == 1
    assert counted(" word\n")["at_line_end"] == 1


def test_an_apology_counts_in_the_opening_only_when_it_stands_there():
    assert counted(" sorry" + " word" * 40)["opening_apology"] == 1
    late = counted(" word" * 40 + " sorry")
    assert (late["opening_apology"], late["apology"]) == (0, 1)


def test_an_answer_that_turns_in_circles_repeats_itself():
    straight = counts_after(np.arange(24), CLASSES)
    circle = counts_after(np.tile(np.arange(6), 4), CLASSES)
    place = COUNTERS.index("repeated")
    assert straight[place] == 0
    assert circle[place] == 24 - 3 - 6
    assert circle[COUNTERS.index("distinct")] == 6


def test_an_answer_is_counted_at_the_checkpoints_at_which_it_went_on():
    assert checkpoints_below(32) == ()
    assert checkpoints_below(33) == (32,)
    assert checkpoints_below(10**6) == CHECKPOINTS
    ids = np.arange(200) % len(PIECES)
    progress = progress_of(ids.tolist(), CLASSES)
    rows = np.array(progress.counts).reshape(-1, len(COUNTERS))
    assert len(rows) == 3
    for row, checkpoint in zip(rows, (32, 64, 128), strict=True):
        assert row.tolist() == counts_after(ids[:checkpoint], CLASSES).tolist()
    assert progress.table == CLASSES.name


def test_an_answer_whose_end_token_is_missing_counts_at_the_checkpoint_before_it():
    ids = np.arange(32) % len(PIECES)
    assert progress_of(ids, CLASSES).counts == ()
    assert len(progress_of(ids, CLASSES, output_tokens=33).counts) == len(COUNTERS)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5])
def test_the_shortest_answers_can_be_counted(length):
    assert counts_after(np.zeros(length, dtype=np.int64), CLASSES).min() >= 0


@given(st.lists(st.integers(-5, len(PIECES) + 5), min_size=1, max_size=300))
@settings(max_examples=60, deadline=None)
def test_counts_are_never_negative_and_agree_with_each_other(ids):
    found = dict(zip(COUNTERS, counts_after(np.array(ids), CLASSES).tolist(), strict=True))
    assert min(found.values()) >= 0
    assert found["first_item"] <= found["last_item"] <= len(ids)
    assert found["item_before_last"] < found["last_item"] or found["last_item"] == 0
    assert found["indented_bullets"] <= found["bullets"]
    assert found["recent_newlines"] <= found["newlines"]
    assert 1 <= found["distinct"] <= min(len(ids), 256)
    assert found["since_line"] <= len(ids)
