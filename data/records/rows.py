"""The rows of a file, whatever its kind: JSON lines, a JSON array or Parquet, told apart by the content."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from laps_sd.data.records.bad_rows import Row, Tolerance, where
from laps_sd.data.records.json_array import NotAnArrayOfObjectsError, iter_objects
from laps_sd.data.records.opening import PARQUET_MAGIC, DamagedFileError, open_bytes
from laps_sd.errors import InputError

#: A line longer than this is no record; without a limit a binary file would be read into memory whole.
LONGEST_LINE = 64 << 20
_LONE_SURROGATE = (
    "a text holds a lone surrogate (\\ud800 to \\udfff), which is no character and which UTF-8 cannot hold"
)


def iter_rows(path: Path, tolerance: Tolerance, longest: int = LONGEST_LINE) -> Iterator[Row]:
    """Yield the rows of a file as JSON values; broken JSON and a cut end count against ``tolerance``.

    Parameters
    ----------
    longest
        Longest line, or object of a JSON array, bytes.

    Raises
    ------
    InputError
        The file is missing, empty, of no known kind, or has one bad row too many.
    """
    with open_bytes(path) as file:
        try:
            start = file.peek(64)[:64]
        except DamagedFileError as error:
            raise InputError(f"{path}: {error}; fetch or write it again") from None
        if not start:
            raise InputError(f"{path}: expected at least one record, the file is empty")
        if start.startswith(PARQUET_MAGIC):
            from laps_sd.data.records.parquet import iter_parquet

            yield from iter_parquet(path, file)
        elif _binary(start):
            raise InputError(f"{path}: expected JSON lines or Parquet, found binary data")
        elif start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
            yield from _iter_array(path, file, tolerance, longest)
        elif _spread_over_lines(file):
            yield from _iter_array(path, _between(b"[", file, b"]"), tolerance, longest)
        else:
            yield from _iter_lines(path, file, tolerance, longest)


def iter_placed(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield each row of a file as its place in words (``odd.jsonl, line 3``) and its value, with no tolerance.

    Raises
    ------
    InputError
        As :func:`iter_rows`, at the first broken row.
    """
    for row in iter_rows(path, Tolerance()):
        yield f"{path}, {row.unit} {row.number}", row.value


def _spread_over_lines(file: io.BufferedReader) -> bool:
    """Whether the file is one indented object after the other instead of one object a line."""
    try:
        lines = file.peek(1 << 16).removeprefix(b"\xef\xbb\xbf").lstrip().split(b"\n", 2)
    except DamagedFileError:
        return False  # told when the lines are read
    if len(lines) < 2 or not lines[0].startswith(b"{"):
        return False
    return lines[0].strip() == b"{" or (lines[1][:1] in (b" ", b"\t") and not lines[0].rstrip().endswith(b"}"))


def _between(before: bytes, file: io.BufferedReader, behind: bytes) -> io.BufferedReader:
    return io.BufferedReader(_Framed(before, file, behind))


class _Framed(io.RawIOBase):
    """The bytes of a file with something before and behind them."""

    def __init__(self, before: bytes, file: io.BufferedReader, behind: bytes) -> None:
        self._file = file
        self._left = before
        self._behind: bytes | None = behind

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        if not self._left:
            self._left = self._file.read1(len(buffer))
            if not self._left and self._behind is not None:
                self._left, self._behind = self._behind, None
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


def _binary(start: bytes) -> bool:
    return b"\0" in start or any(byte < 32 and byte not in b"\t\n\r" for byte in start)


def _iter_lines(path: Path, file: io.BufferedReader, tolerance: Tolerance, longest: int) -> Iterator[Row]:
    decode = msgspec.json.Decoder().decode
    number = 0
    try:
        # Only a line feed ends a line: str.splitlines would also cut at U+2028 inside a prompt.
        while line := file.readline(longest):
            number += 1
            if len(line) == longest and not line.endswith(b"\n"):
                raise InputError(f"{where(path, 'line', number)}: expected at most {longest >> 20} MiB, it is longer")
            try:
                value = decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if not line.isspace():
                    value = _second_try(path, number, line, error, tolerance)
                    if value is not None:
                        yield Row("line", number, value)
                continue
            yield Row("line", number, value)
    except DamagedFileError as error:
        tolerance.reject(f"{where(path, 'line', number + 1)}: {error}; fetch or write the file again")


def _second_try(path: Path, number: int, line: bytes, first: Exception, tolerance: Tolerance) -> Any:
    """Decode what is JSON but for a byte-order mark or Python's Infinity and NaN, which SGLang's benchmark writes.

    A number too large for a float (1e999) is infinite too: the check of its field then names it. Else reject the line
    with what is wrong with it, and return None.
    """
    try:
        if b"Infinity" not in line and b"NaN" not in line and "out of range" not in str(first):
            return msgspec.json.decode(line)
        value = json.loads(line)
        msgspec.json.encode(value)  # Python's decoder lets lone surrogates pass, its encoder does not
        return value
    except UnicodeEncodeError:
        fault = _LONE_SURROGATE
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as again:
        fault = _json_fault(line, again)
    tolerance.reject(f"{where(path, 'line', number)}: expected one JSON object, {fault}")
    return None


def _json_fault(line: bytes, error: Exception) -> str:
    if (
        b"\\ud" in line.lower()
        and ("truncated" in str(error) or "surrogate" in str(error))
        and line.rstrip().endswith(b"}")
    ):
        return _LONE_SURROGATE
    text = line[:40].decode("utf-8", "replace").rstrip()
    try:
        line.decode()
    except UnicodeDecodeError:
        error = ValueError("expected JSON lines in UTF-8")
    return f"got {text + ('…' if len(line) > 40 else '')!r} ({error})"


def _iter_array(path: Path, file: io.BufferedReader, tolerance: Tolerance, longest: int) -> Iterator[Row]:
    number = 0
    try:
        for number, text in enumerate(iter_objects(file, longest), 1):
            try:
                yield Row("item", number, msgspec.json.decode(text))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                tolerance.reject(f"{where(path, 'item', number)}: expected a JSON object, {_json_fault(text, error)}")
    except (NotAnArrayOfObjectsError, DamagedFileError) as error:
        tolerance.reject(f"{where(path, 'item', number + 1)}: expected a JSON array of objects, {error}")
