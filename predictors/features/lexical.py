"""Lexical features: what the surface of a prompt says about the length of its answer.

Cheap on purpose. One histogram of the UTF-8 bytes gives every character count and the scripts (the lead byte of a
character tells its script), and one pass over the words looks each up in a small table of classes. Counts are kept
as logarithms or shares, so that a 16,000-character prompt is not 16 times further away than a 1,000-character one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import compress, count, repeat
from math import log1p

import numpy as np
from numpy.typing import NDArray

from laps_sd.predictors.features.words import ASKED_UNITS, CLASSES, NUMBER_WORDS

#: Only these many words from the start and the end are read; instructions stand there, and the cost stays bounded.
HEAD_WORDS, TAIL_WORDS = 300, 100
#: The instruction itself: the opening and the closing words get counts of their own.
OPENING, CLOSING = 12, 16

# Scripts without spaces give one word a character; the rest give runs of letters and digits.
_CJK = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+")
_TO_SPACE = {i: " " for i in range(128) if not (chr(i).isalnum() or chr(i) == "_")}
_LIMITS = frozenset({"most", "maximum", "max", "under", "within", "limit", "less", "below"})
_NEGATIONS = frozenset({"no", "not", "never"})
_MINIMUMS = frozenset({"least", "minimum", "min", "over", "more"})

_BYTES: dict[str, bytes] = {
    "digits": b"0123456789",
    "upper": b"ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "newlines": b"\n",
    "spaces": b" \t",
    "questions": b"?",
    "exclaims": b"!",
    "colons": b":",
    "commas": b",",
    "stops": b".",
    "quotes": b"\"'",
    "code_marks": b"{}();=<>[]",
    "backticks": b"`",
    "markdown": b"#*|_",
    "operators": b"+-/%$^",
    "latin_accents": bytes(range(0xC3, 0xC6)),
    "greek_cyrillic": bytes(range(0xCE, 0xD4)),
    "semitic": bytes(range(0xD6, 0xDC)),
    "indic_thai": bytes([0xE0, 0xE1]),
    "symbols": bytes([0xE2, 0xF0]),
    "cjk": bytes(range(0xE3, 0xEA)),
    "hangul": bytes(range(0xEA, 0xEE)),
}
_CLASS_OF_WORD = {word: i for i, words in reversed(list(enumerate(CLASSES.values()))) for word in words.split()}
_OTHER = len(CLASSES)
_NUMBER = _OTHER + 1
_KINDS = _NUMBER + 1
#: Classes of the opening and the closing words get numbers of their own, so that one histogram counts all three.
_AS_OPENING, _AS_CLOSING = (bytes((i + shift) % 256 for i in range(256)) for shift in (_KINDS, 2 * _KINDS))
_CLASS_OF_WORD.update(dict.fromkeys(NUMBER_WORDS, _NUMBER))

LEXICAL_NAMES: tuple[str, ...] = (
    "log_bytes",
    "log_chars",
    "log_words",
    "log_lines",
    "mean_word",
    "ends_question",
    "ends_colon",
    "starts_lower",
    "long_first_line",
    "distinct_words",
    "code_blocks",
    "log_last_line",
    "log_after_blank",
    "asked_words",
    "asked_items",
    "asked_tokens",
    "asked_limit",
    "asked_minimum",
    *(f"share_{name}" for name in _BYTES),
    *(f"log_{name}" for name in ("digits", "newlines", "questions", "code_marks")),
    *(f"words_{name}" for name in CLASSES),
    *(f"opening_{name}" for name in CLASSES),
    *(f"closing_{name}" for name in CLASSES),
    "first_class",
    "echo_bytes",
    "log_digit_words",
)

#: No byte is in two classes; those in none get the number after the last.
_CLASS_OF_BYTE = bytes(
    next((i for i, part in enumerate(_BYTES.values()) if b in part), len(_BYTES)) for b in range(256)
)
_LOGGED = [list(_BYTES).index(name) for name in ("digits", "newlines", "questions", "code_marks")]
_ECHO = list(CLASSES).index("echo")

# Where each part of the features stands.
_SURFACE = slice(0, LEXICAL_NAMES.index("asked_minimum") + 1)
_SHARES = slice(_SURFACE.stop, _SURFACE.stop + len(_BYTES))
_LOGS = slice(_SHARES.stop, _SHARES.stop + len(_LOGGED))
_WHOLE = slice(_LOGS.stop, _LOGS.stop + _OTHER)
_OPENING = slice(_WHOLE.stop, _WHOLE.stop + _OTHER)
_CLOSING = slice(_OPENING.stop, _OPENING.stop + _OTHER)
_LAST = slice(_CLOSING.stop, len(LEXICAL_NAMES))


def words_of(text: str) -> list[str]:
    """Return the lower-case words of a prompt: the first ``HEAD_WORDS`` and the last ``TAIL_WORDS``."""
    if len(text) > 10 * (HEAD_WORDS + TAIL_WORDS):
        head, tail = _split(text[: 10 * HEAD_WORDS]), _split(text[-10 * TAIL_WORDS :])
        return head[:HEAD_WORDS] + tail[-TAIL_WORDS:]
    words = _split(text)
    return words if len(words) <= HEAD_WORDS + TAIL_WORDS else words[:HEAD_WORDS] + words[-TAIL_WORDS:]


def _split(text: str) -> list[str]:
    # str.translate has a fast path for ASCII, several times faster than the regular expression.
    return text.lower().translate(_TO_SPACE).split() if text.isascii() else _WORD.findall(text.lower())


def lexical_features(text: str, words: list[str] | None = None) -> NDArray[np.float64]:
    """Return the features named in ``LEXICAL_NAMES``.

    Parameters
    ----------
    text : str
        Canonical prompt; any language, any length, may be empty.
    words : list of str, optional
        ``words_of(text)`` when the caller has it already.

    Returns
    -------
    array of float64, shape (len(LEXICAL_NAMES),)
    """
    features = np.empty((1, len(LEXICAL_NAMES)))
    lexical_rows([text], [words_of(text) if words is None else words], out=features)
    row: NDArray[np.float64] = features[0]
    return row


def lexical_rows(texts: Sequence[str], words: Sequence[list[str]], out: NDArray[np.float64]) -> None:
    """Write the features of ``texts``, whose ``words_of`` are ``words``, to ``out``, shape (n, len(LEXICAL_NAMES))."""
    marks = np.empty((len(texts), len(_BYTES) + 1))
    classes = np.empty((len(texts), 3 * _KINDS))  # whole prompt, opening, closing
    for i, (text, found) in enumerate(zip(texts, words, strict=True)):
        raw = text.encode("utf-8", "replace")
        marks[i] = _histogram(raw.translate(_CLASS_OF_BYTE), len(_BYTES) + 1)
        kinds = bytes(map(_CLASS_OF_WORD.get, found, repeat(_OTHER)))
        opening, closing = kinds[:OPENING].translate(_AS_OPENING), kinds[-CLOSING:].translate(_AS_CLOSING)
        classes[i] = _histogram(kinds + opening + closing, 3 * _KINDS)
        places = list(compress(count(), map(":".__gt__, found)))  # what sorts before ":" starts with a digit
        digit_words = len(places)
        if _NUMBER in kinds:
            places += [j for j, kind in enumerate(kinds) if kind == _NUMBER]
        echoes = kinds.find(_ECHO, 0, OPENING) >= 0 or kinds.find(_ECHO, max(0, len(kinds) - CLOSING)) >= 0
        out[i, _SURFACE] = _surface(text, raw, found, places)
        out[i, _LAST] = (
            next((kind for kind in kinds if kind < _OTHER), -1.0),
            log1p(len(raw)) if echoes else 0.0,
            log1p(digit_words),
        )
    np.divide(marks[:, :-1], marks.sum(axis=1, keepdims=True) + 1.0, out=out[:, _SHARES])
    np.log1p(marks[:, _LOGGED], out=out[:, _LOGS])
    np.log1p(classes[:, :_OTHER], out=out[:, _WHOLE])
    out[:, _OPENING] = classes[:, _KINDS : _KINDS + _OTHER]
    out[:, _CLOSING] = classes[:, 2 * _KINDS : 2 * _KINDS + _OTHER]


def _histogram(data: bytes, size: int) -> NDArray[np.intp]:
    return np.bincount(np.frombuffer(data, dtype=np.uint8), minlength=size)


def _surface(text: str, raw: bytes, words: list[str], places: list[int]) -> tuple[float, ...]:
    n_words = len(words)
    stripped = text.rstrip()
    first_line = text.find("\n")
    blank = stripped.rfind("\n\n")
    return (
        log1p(len(raw)),
        log1p(len(text)),
        log1p(n_words),
        log1p(raw.count(b"\n")),
        len(text) / (n_words + 1.0),
        stripped.endswith(("?", "？")),
        stripped.endswith((":", "：")),
        text[:1].islower(),
        first_line < 0 or first_line > 200,
        len(set(words)) / (n_words + 1.0),
        text.count("```"),
        log1p(len(stripped) - stripped.rfind("\n") - 1),
        log1p(len(stripped) - blank - 2) if blank >= 0 else 0.0,
        *asked_for(words, places),
    )


def asked_for(words: list[str], places: list[int] | None = None) -> tuple[float, float, float, float, float]:
    """Return what length the prompt asks for in so many words ("in 50 words", "ten ideas", "two paragraphs").

    Parameters
    ----------
    words : list of str
        ``words_of`` the prompt.
    places : list of int, optional
        Where numbers stand, when the caller knows.

    Returns
    -------
    asked_words, asked_items : float
        Logarithms of the largest number of words and of countable things asked for; 0 when none is.
    asked_tokens : float
        Logarithm of their rough size in tokens; 0 when nothing is asked for.
    asked_limit, asked_minimum : float
        1 when a word before the number makes it an upper (lower) bound.
    """
    most_words = most_items = most_tokens = limit = minimum = 0.0
    for i in [i for i, word in enumerate(words) if _is_number(word)] if places is None else places:
        unit = next(filter(None, map(ASKED_UNITS.get, words[i + 1 : i + 4])), None)
        if unit is None:
            continue
        number = _number(words[i])
        if not 0 < number < 100_000:
            continue
        kind, size = unit
        if kind == "words":
            most_words = max(most_words, number)
        else:
            most_items = max(most_items, number)
        most_tokens = max(most_tokens, number * size)
        before = words[max(0, i - 3) : i]
        bounded = not _LIMITS.isdisjoint(before)
        floor = not _MINIMUMS.isdisjoint(before)
        if floor and not _NEGATIONS.isdisjoint(before):  # "no more than 100 words"
            bounded, floor = True, False
        limit, minimum = max(limit, float(bounded)), max(minimum, float(floor))
    return log1p(most_words), log1p(most_items), log1p(most_tokens), limit, minimum


def _is_number(word: str) -> bool:
    return word < ":" or word in NUMBER_WORDS  # what sorts before ":" starts with a digit


def _number(word: str) -> float:
    if word in NUMBER_WORDS:
        return float(NUMBER_WORDS[word])
    return float(word) if word.isdecimal() and len(word) < 7 else 0.0
