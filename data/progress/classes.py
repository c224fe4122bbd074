"""What kind of text each token of a vocabulary is, as a table: once it is made, no token is ever decoded again."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

#: Raised when a class or a counter changes its meaning: counts of another version say nothing to a model of this one.
VERSION = 1

#: Columns of the table. All are 0 or 1 but ``chars`` and ``newlines``, which are counts (at most 255), and ``number``.
CLASSES: tuple[str, ...] = (
    "chars",
    "newlines",
    "ends_line",
    "blank_line",
    "spaces",
    "sentence_end",
    "comma",
    "colon",
    "quote",
    "bracket",
    "digit",
    "foreign",
    "unspaced",
    "capital",
    "bullet",
    "heading",
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
    "after_number",
    "number",
)
COLUMN = {name: place for place, name in enumerate(CLASSES)}

_NUMBER_WORDS = {
    word: value
    for value, words in {
        2: "two couple", 3: "three", 4: "four few", 5: "five several", 6: "six", 7: "seven", 8: "eight", 9: "nine",
        10: "ten", 11: "eleven", 12: "twelve dozen", 15: "fifteen", 20: "twenty",
    }.items()
    for word in words.split()
}  # fmt: skip
_LARGEST_NUMBER = 99

_WORDS: dict[str, frozenset[str]] = {
    name: frozenset(words.split())
    for name, words in {
        "code": "def class import return const var function print elif int void public static null None true True",
        "closing": (
            "conclusion conclude summary summarize overall ultimately finally lastly hope helps regards sincerely luck "
            "enjoy remember free questions assistance further note disclaimer let know cheers best good"
        ),
        "apology": "sorry apologize apologies unfortunately cannot unable can't however but",
        "example": "example examples instance such like including e.g",
        "sequence": "first firstly second secondly third next then step steps finally last after before",
        "first_person": "i my me we our i'm i'll i'd i've",
        "second_person": "you your yours yourself you're you'll",
        "announcing": "here here's following below these list ways tips ideas options sure certainly course",
    }.items()
}
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_DIGITS = re.compile(r"\d", re.ASCII)
_CODE = re.compile(r"[{};_]|\(\)|=>|==|</|->|//")
_MATHS = re.compile(r"[=\\$^×÷√∑]")
_BULLETS = frozenset({"-", "*", "•", "+", "–", "·"})


class Vocabulary(Protocol):
    """The methods of a Hugging Face tokenizer from which the table is made."""

    def __len__(self) -> int:
        """Return the number of token ids, special ones included."""

    def encode(self, text: str, /, *, add_special_tokens: bool = ...) -> Any:
        """Return the token ids of a text."""

    def decode(self, token_ids: Sequence[int], /, *, skip_special_tokens: bool = ...) -> Any:
        """Return the text of token ids."""


class TokenClasses:
    """The classes of every token of one vocabulary.

    Parameters
    ----------
    table : array of uint8, shape (V + 1, len(CLASSES))
        A row per token id; the last row, all zeros, stands for ids beyond the vocabulary.

    Raises
    ------
    ValueError
        The table has another shape or type.
    """

    def __init__(self, table: NDArray[np.uint8]) -> None:
        if table.ndim != 2 or table.shape[1] != len(CLASSES) or table.dtype != np.uint8 or table[-1:].any():
            raise ValueError(f"token classes need bytes of shape (ids + 1, {len(CLASSES)}), the last row 0")
        self._table = np.ascontiguousarray(table)

    @classmethod
    def of(cls, tokenizer: Vocabulary) -> TokenClasses:
        """Return the classes of a tokenizer's tokens; seconds for a vocabulary of 150,000."""
        return cls.of_texts(_texts(tokenizer))

    @classmethod
    def of_texts(cls, texts: Iterable[str]) -> TokenClasses:
        """Return the classes of tokens whose texts are given in the order of their ids."""
        found = bytearray()
        for text in texts:
            found += bytes(_classes(text))
        found += bytes(len(CLASSES))
        return cls(np.frombuffer(bytes(found), dtype=np.uint8).reshape(-1, len(CLASSES)))

    def __len__(self) -> int:
        """Return the number of token ids that the table knows."""
        return len(self._table) - 1

    def rows(self, ids: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the classes of tokens, shape (n, len(CLASSES)); ids that no vocabulary has are of no class."""
        unknown = len(self)
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < unknown:
            ids = np.where((ids < 0) | (ids > unknown), unknown, ids)
        return self._table.take(ids, axis=0)

    @cached_property
    def name(self) -> str:
        """What tells this table from every other: ``v``, the version, and a fingerprint of all classes."""
        return f"v{VERSION}-{hashlib.sha256(self._table.tobytes()).hexdigest()[:16]}"


def _texts(tokenizer: Vocabulary) -> Iterable[str]:
    """Yield the text that each token adds behind a word: blanks and line ends are part of it.

    A token alone may lose its blank (SentencePiece takes it for the start of a text); behind an anchor it does not.
    """
    anchor = int(list(tokenizer.encode("a", add_special_tokens=False))[-1])
    before = len(str(tokenizer.decode([anchor], skip_special_tokens=True)))
    for token in range(len(tokenizer)):
        try:
            text = str(tokenizer.decode([anchor, token], skip_special_tokens=True))
        except Exception:  # an id without a token: whatever the tokenizer of a model's makers raises there
            text = ""
        yield text[before:]


def _classes(text: str) -> list[int]:
    """Return the row of one token."""
    if not text:
        return [0] * len(CLASSES)
    bare = text.strip()
    word = bare.lower().strip("*_#\"'.,:;!?()")
    last = bare[-1:]
    kinds = {name: word in words for name, words in _WORDS.items()}
    kinds["code"] = bare in _WORDS["code"] or bool(_CODE.search(bare))
    found: dict[str, int] = {
        "chars": min(len(text), 255),
        "newlines": min(text.count("\n"), 255),
        "ends_line": text.rstrip(" \t").endswith("\n"),
        "blank_line": text.count("\n") > 1,
        "spaces": not bare and "\n" not in text,
        "sentence_end": last in ".!?。！？…" and bool(last),
        "comma": last in ",，、" and bool(last),
        "colon": last in ":：" and bool(last),
        "quote": any(mark in bare for mark in '"“”«»'),
        "bracket": "(" in bare,
        "digit": bool(_DIGITS.search(bare)),
        "foreign": not bare.isascii(),
        "unspaced": bool(_UNSPACED.search(bare)),
        "capital": bare[:1].isupper(),
        "bullet": bare in _BULLETS,
        "heading": bool(bare) and not bare.strip("#"),
        "bold": "**" in bare,
        "fence": "```" in bare,
        "bar": "|" in bare,
        "maths": bool(_MATHS.search(bare)),
        "after_number": bare[:1] in (".", ")"),
        "number": _number(word, bare),
        **kinds,
    }
    return [int(found[name]) for name in CLASSES]


def _number(word: str, bare: str) -> int:
    """Return the number that a token says, plus 1; 0 when it says none up to 99."""
    if bare.isascii() and bare.isdigit():
        return int(bare) + 1 if int(bare) <= _LARGEST_NUMBER else 0
    return _NUMBER_WORDS.get(word, -1) + 1
