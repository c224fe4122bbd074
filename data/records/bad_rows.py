"""A row of a file before it is checked, and what happens when it is no record: one sentence, and a limit."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from laps_sd.data.records.schema import COLUMN_NAMES, FIELD_NAMES, RequestRecord
from laps_sd.errors import InputError

#: Called with the sentence about each row that was skipped.
OnBad = Callable[[str], None]

_AT = re.compile(r" - at `\$\.?(.*?)`$")
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_EXPECTED = re.compile(r"Expected (.*?)(?:, got `(.*)`)?$")
_KINDS = {
    "int": "an integer",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
}
_COLUMNS = frozenset(COLUMN_NAMES)


class Row(NamedTuple):
    """A row before it is checked, and how its place in the file is told."""

    unit: str  # "line", "row" or "item"
    number: int  # from 1
    value: Any


class Tolerance:
    """Counts the bad rows of one input and ends the reading once there are too many.

    Parameters
    ----------
    skip_bad
        How many bad rows are tolerated.
    on_bad
        Told about each of them.
    hint
        What to say at the first bad row when none is tolerated.
    """

    def __init__(self, skip_bad: int = 0, on_bad: OnBad | None = None, hint: str = "") -> None:
        if skip_bad < 0:
            raise InputError(f"the number of bad rows to skip must not be negative, got {skip_bad}")
        self.allowed = skip_bad
        self.skipped = 0
        self._on_bad = on_bad
        self._hint = hint

    def reject(self, sentence: str) -> None:
        """Count one bad row, or raise InputError when it is one too many."""
        if not sentence.isprintable():  # names of fields are quoted from the file, and may hold anything
            sentence = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in sentence)
        if self.skipped >= self.allowed:
            if self.allowed:
                sentence += f" (after {self.skipped} bad rows that --skip-bad {self.allowed} tolerated)"
            elif self._hint:
                sentence += f" ({self._hint})"
            raise InputError(sentence)
        self.skipped += 1
        if self._on_bad is not None:
            self._on_bad(sentence)


def where(path: Path, unit: str, number: int) -> str:
    """Return the place of a row in words: ``trace.jsonl: line 3``."""
    return f"{path}: {unit} {number}"


def to_record(row: dict[str, Any]) -> RequestRecord:
    """Turn a row with any columns into a record; columns that the schema does not name go to ``extra``.

    Raises
    ------
    ValueError
        One sentence with the field, what was expected and what was there.
    """
    if not row.keys() <= _COLUMNS:
        row = _with_extra(row)
    try:
        return msgspec.convert(row, RequestRecord)
    except msgspec.ValidationError as error:
        raise ValueError(explain(error, row)) from None


def _with_extra(row: dict[str, Any]) -> dict[str, Any]:
    """Move unknown columns to ``extra``. A null there says nothing: a Parquet column has one in every other row."""
    known = {name: value for name, value in row.items() if name in _COLUMNS}
    extra = {name: value for name, value in row.items() if name not in FIELD_NAMES and value is not None}
    nested = row.get("extra")
    if nested is not None:
        if not isinstance(nested, dict):
            return {**known, "extra": nested}  # convert() says what is wrong with it
        extra = {**{k: v for k, v in nested.items() if v is not None}, **extra}
    return {**known, "extra": extra}


def explain(error: msgspec.ValidationError, row: dict[str, Any]) -> str:
    """Put msgspec's message into our words: the field, what was expected, what was there."""
    message = str(error)
    missing = _MISSING.match(message)
    if missing:
        return f"{missing[1]}: expected a value, the field is missing"
    at = _AT.search(message)
    if not at:
        return message  # a rule of RequestRecord, in our words already
    field = at[1]
    message = message[: at.start()]
    got = _short(_dig(row, field))
    if message.startswith("Invalid enum value"):
        return f"{field}: expected `stop`, `length` or `abort`, got {got}"
    expected = _EXPECTED.match(message)
    words = _in_words(expected[1]) if expected else message
    return f"{field}: expected {words}, got {got}"


def _in_words(kinds: str) -> str:
    """``int | null`` → ``an integer or null``; ``int >= 0`` → ``an integer >= 0``."""
    if kinds.startswith("`str` of length >= 1"):
        return "text that is not empty"
    return re.sub(r"`([^`]*)`", lambda m: " or ".join(_KINDS.get(k, k) for k in m[1].split(" | ")), kinds).replace(
        ".0", ""
    )


def _dig(row: dict[str, Any], path: str) -> Any:
    value: Any = row
    for step in re.findall(r"[^.\[\]]+", path):
        try:
            value = value[int(step)] if isinstance(value, list | tuple) else value[step]
        except (KeyError, IndexError, TypeError, ValueError):
            return value
    return value


def _short(value: Any) -> str:
    text = repr(value)
    kind = {bool: "a boolean ", str: "text ", dict: "an object ", list: "a list "}.get(type(value), "")
    return kind + (text if len(text) <= 60 else text[:57] + "…")
