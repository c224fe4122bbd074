"""Counts of what an answer has said so far, at a few fixed lengths, from its token ids.

Nothing is carried from one length to the next: the counts after 256 tokens are a function of the first 256 ids, the
same while serving, after a retraction, on every rank and in a record. All of it is a few dozen operations on arrays,
so a token costs well below a microsecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from laps_sd.data.progress.classes import COLUMN, TokenClasses

#: Output lengths, tokens, at which an answer is counted; in between and beyond, nothing new is known of it.
CHECKPOINTS: tuple[int, ...] = (32, 64, 128, 256, 512, 1024, 2048)
#: The end of what was said and its opening are counted once more by themselves, tokens.
RECENT, OPENING = 32, 12
#: Distinct and repeated tokens are counted among the last ones: who turns in circles does it there.
LOOP = 256
#: A number of things is announced early ("Here are five reasons"), tokens.
_ANNOUNCED_WITHIN = 48
_FEWEST_ITEMS, _MOST_ITEMS = 2, 50

_TOTALS = (
    "chars",
    "newlines",
    "blank_line",
    "sentence_end",
    "comma",
    "colon",
    "quote",
    "bracket",
    "digit",
    "foreign",
    "unspaced",
    "capital",
    "bold",
    "fence",
    "bar",
    "code",
    "maths",
    "closing",
    "apology",
    "example",
    "sequence",
    "first_person",
    "second_person",
    "announcing",
)
_RECENT = ("chars", "newlines", "sentence_end", "colon", "digit", "capital", "code", "closing")
_OPENING = ("capital", "bold", "digit", "fence", "apology", "first_person", "announcing")
_PLACES = (
    "numbered_items",
    "largest_number",
    "bullets",
    "indented_bullets",
    "headings",
    "bold_lines",
    "table_lines",
    "first_item",  # positions count from 1; 0: there is none
    "last_item",
    "item_before_last",
    "since_line",
    "since_sentence",
    "at_line_end",
    "at_sentence_end",
    "at_colon",
    "distinct",  # this and the next among the last `LOOP` tokens
    "repeated",
    "announced_items",
)
#: What is counted, in this order; whole numbers of at least 0.
COUNTERS: tuple[str, ...] = (
    *_TOTALS,
    *(f"recent_{name}" for name in _RECENT),
    *(f"opening_{name}" for name in _OPENING),
    *_PLACES,
)
_TOTAL_COLUMNS, _RECENT_COLUMNS, _OPENING_COLUMNS = (
    [COLUMN[name] for name in names] for names in (_TOTALS, _RECENT, _OPENING)
)
#: Odd multipliers that spread four ids over 64 bits.
_SPREAD = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5], dtype=np.uint64)


class Progress(NamedTuple):
    """What is kept of an answer in its record.

    Attributes
    ----------
    counts : tuple of int
        `COUNTERS` after the first checkpoint, then after the second, and so on, in one row.
    table : str
        Name of the table of token classes that counted.
    """

    counts: tuple[int, ...]
    table: str


def checkpoints_below(output_tokens: int) -> tuple[int, ...]:
    """Return the checkpoints at which an answer of this length still went on."""
    return tuple(checkpoint for checkpoint in CHECKPOINTS if checkpoint < output_tokens)


def progress_of(ids: Sequence[int], classes: TokenClasses, output_tokens: int | None = None) -> Progress:
    """Return what is kept of a finished answer.

    Parameters
    ----------
    ids : sequence of int
        Its token ids.
    classes : TokenClasses
        Of the tokenizer that the ids are from.
    output_tokens : int, optional
        Its length as the record says it, where ``ids`` may lack the end token; by default their number.
    """
    known = np.asarray(ids, dtype=np.int64)
    length = len(known) if output_tokens is None else output_tokens
    rows = [counts_after(known[:c], classes) for c in checkpoints_below(length) if c <= len(known)]
    flat = np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64)
    return Progress(tuple(flat.tolist()), classes.name)


def counts_after(ids: NDArray[np.int64], classes: TokenClasses) -> NDArray[np.int64]:
    """Return `COUNTERS` of an answer of which ``ids`` is all that was said so far, at least one token."""
    rows = classes.rows(ids)
    counts = np.empty(len(COUNTERS), dtype=np.int64)
    # Sums by a product of floats, which hold such sums exactly, are several times faster.
    totals, recent, opening = (_weights(len(rows)) @ rows.astype(np.float32)).astype(np.int64)
    cut = len(_TOTALS), len(_TOTALS) + len(_RECENT), len(_TOTALS) + len(_RECENT) + len(_OPENING)
    counts[: cut[0]] = totals[_TOTAL_COLUMNS]
    counts[cut[0] : cut[1]] = recent[_RECENT_COLUMNS]
    counts[cut[1] : cut[2]] = opening[_OPENING_COLUMNS]
    counts[cut[2] :] = _places(ids, rows)
    return counts


@lru_cache(maxsize=64)
def _weights(tokens: int) -> NDArray[np.float32]:
    """Return what picks all, the last and the first of so many tokens, shape (3, tokens)."""
    picked = np.ones((3, tokens), dtype=np.float32)
    picked[1, :-RECENT] = 0.0
    picked[2, OPENING:] = 0.0
    return picked


def _places(ids: NDArray[np.int64], rows: NDArray[np.uint8]) -> tuple[int, ...]:
    """Return what depends on where tokens stand: items, lines, loops."""
    columns = np.ascontiguousarray(rows.T)
    starts = _line_starts(columns)
    numbers = columns[COLUMN["number"]]
    numbered, largest = _numbered(starts, numbers, columns[COLUMN["after_number"]], columns[COLUMN["digit"]])
    bullets = np.flatnonzero(starts & columns[COLUMN["bullet"]])
    indented = columns[COLUMN["spaces"]][bullets[bullets > 0] - 1]
    items = np.sort(np.concatenate([numbered, bullets])) if len(numbered) else bullets
    ends_line, ends_sentence = columns[COLUMN["ends_line"]], columns[COLUMN["sentence_end"]]
    return (
        len(numbered),
        largest,
        len(bullets),
        int(np.count_nonzero(indented)),
        int(np.count_nonzero(starts & columns[COLUMN["heading"]])),
        int(np.count_nonzero(starts & columns[COLUMN["bold"]])),
        int(np.count_nonzero(starts & columns[COLUMN["bar"]])),
        int(items[0]) + 1 if len(items) else 0,
        int(items[-1]) + 1 if len(items) else 0,
        int(items[-2]) + 1 if len(items) > 1 else 0,
        _since_last(columns[COLUMN["newlines"]]),
        _since_last(ends_sentence),
        int(ends_line[-1]),
        int(ends_sentence[-1]),
        int(columns[COLUMN["colon"]][-1]),
        _distinct(ids[-LOOP:]),
        _repeated(ids[-LOOP:]),
        _announced(*(part[:_ANNOUNCED_WITHIN] for part in (numbers, starts, columns[COLUMN["digit"]]))),
    )


def _line_starts(columns: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Mark the tokens with which a line starts, blanks, ``**`` and ``#`` before them aside."""
    starts = np.empty(columns.shape[1], dtype=np.uint8)
    starts[0] = 1
    starts[1:] = columns[COLUMN["ends_line"]][:-1]
    passed = columns[COLUMN["spaces"]] | columns[COLUMN["bold"]] | columns[COLUMN["heading"]]
    for _ in range(2):
        starts[1:] |= starts[:-1] & passed[:-1]
    return starts


def _numbered(
    starts: NDArray[np.uint8], numbers: NDArray[np.uint8], after: NDArray[np.uint8], digit: NDArray[np.uint8]
) -> tuple[NDArray[np.int64], int]:
    """Return the places of the numbers of list items, ``3.`` or ``12)`` at the start of a line, and the largest.

    Many vocabularies have single digits only: ``12`` is two tokens there.
    """
    stated = np.flatnonzero((starts & digit)[:-1])
    if not len(stated):
        return stated, 0
    values = numbers.astype(np.int64) - 1
    single = (values[stated] >= 0) & (after[stated + 1] == 1)
    longer = stated[stated + 2 < len(starts)]
    pairs = longer[
        (values[longer] >= 0) & (values[longer + 1] >= 0) & (digit[longer + 1] == 1) & (after[longer + 2] == 1)
    ]
    ones = stated[single]
    largest = max(values[ones].max(initial=0), (10 * values[pairs] + values[pairs + 1]).max(initial=0))
    return np.union1d(ones, pairs) if len(pairs) else ones, int(largest)


def _since_last(marks: NDArray[np.uint8]) -> int:
    """Return the number of tokens behind the last marked one; all of them when there is none."""
    back = marks[::-1] != 0
    place = int(back.argmax())
    return place if back[place] else len(marks)


def _repeated(ids: NDArray[np.int64]) -> int:
    """Return how many runs of four tokens had been said before: an answer that turns in circles has many."""
    runs = len(ids) - 3
    if runs < 2:
        return 0
    words = ids.astype(np.uint64)
    mixed = words[:runs] * _SPREAD[0]
    for i in range(1, 4):
        mixed += words[i : i + runs] * _SPREAD[i]
    return runs - _distinct(mixed)


def _distinct(values: NDArray[Any]) -> int:
    ordered = np.sort(values)
    return 1 + int(np.count_nonzero(ordered[1:] != ordered[:-1]))


def _announced(numbers: NDArray[np.uint8], starts: NDArray[np.uint8], digit: NDArray[np.uint8]) -> int:
    """Return the first number, 2 to 50, that is said inside an early line: how many things are announced.

    Digits beside digits are a year or a price.
    """
    if not (numbers > _FEWEST_ITEMS).any():
        return 0
    alone = starts == 0
    pairs = digit[:-1] & digit[1:]
    alone[1:] &= pairs == 0
    alone[:-1] &= pairs == 0
    fits = np.flatnonzero(alone & (numbers > _FEWEST_ITEMS) & (numbers <= _MOST_ITEMS + 1))
    return int(numbers[fits[0]]) - 1 if len(fits) else 0
