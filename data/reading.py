"""Read request records from JSON lines or Parquet, a block at a time whatever the size of the file."""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from laps_sd.data.badrows import OnBad, Tolerance, to_record, where
from laps_sd.data.opening import PARQUET_MAGIC, DamagedFileError, open_bytes
from laps_sd.data.rows import Row
from laps_sd.data.schema import RequestRecord
from laps_sd.data.seen import SeenIds
from laps_sd.errors import InputError

#: A line longer than this is no record; without a limit a binary file would be read into memory whole.
LONGEST_LINE = 64 << 20
_BLOCK_ROWS = 1024
_BLOCK_BYTES = 4 << 20


def read_records(path: Path | str, *, skip_bad: int = 0, on_bad: OnBad | None = None) -> list[RequestRecord]:
    """Read all records of a file into a list. See :func:`iter_records`."""
    return list(iter_records(path, skip_bad=skip_bad, on_bad=on_bad))


def iter_records(path: Path | str, *, skip_bad: int = 0, on_bad: OnBad | None = None) -> Iterator[RequestRecord]:
    """Yield the records of a JSON-lines, JSON-array or Parquet file, plain or inside gzip or Zstandard.

    The kind of file is told by its content. Memory stays bounded: a block of rows, and eight bytes per row by which
    duplicate ids are found.

    Parameters
    ----------
    path
        The file.
    skip_bad
        How many bad rows (a truncated end counts as one) are left out instead of ending the reading.
    on_bad
        Called with the sentence about each row left out.

    Raises
    ------
    InputError
        The file cannot be read, holds no record, or has more bad rows than ``skip_bad``: one sentence with file,
        line or row, field and expectation.
    """
    path = Path(path)
    tolerance = Tolerance(skip_bad, on_bad)
    yield from records_of(iter_rows(path, tolerance), path, tolerance)


def records_of(rows: Iterable[Row], path: Path, tolerance: Tolerance) -> Iterator[RequestRecord]:
    """Turn rows into records, leaving out bad ones and repeated ids as far as ``tolerance`` goes."""
    seen = SeenIds()
    found = 0
    block: list[tuple[Row, RequestRecord]] = []
    size = 0
    for row in chain(rows, [None]):
        if row is not None:
            try:
                if not isinstance(row.value, dict):
                    raise ValueError(f"expected an object with the fields of a record, got {type(row.value).__name__}")
                record = to_record(row.value)
            except ValueError as error:
                tolerance.reject(f"{where(path, row.unit, row.number)}: {error}")
                continue
            block.append((row, record))
            size += len(record.prompt or "")
        if len(block) >= _BLOCK_ROWS or size >= _BLOCK_BYTES or row is None:
            for index in seen.repeated([record.request_id for _, record in block]):
                bad, record = block[index]
                tolerance.reject(
                    f"{where(path, bad.unit, bad.number)}: request_id: expected a name that no earlier row has, "
                    f"got {record.request_id!r} again"
                )
                block[index] = (bad._replace(number=0), record)
            for kept, record in block:
                if kept.number:
                    found += 1
                    yield record
            block, size = [], 0
    if not found:
        raise InputError(f"{path}: expected at least one record, found none that can be used")


def iter_rows(path: Path, tolerance: Tolerance) -> Iterator[Row]:
    """Yield the rows of a file as dictionaries; broken JSON and cut streams count against ``tolerance``."""
    with open_bytes(path) as file:
        try:
            start = file.peek(64)[:64]
        except DamagedFileError as error:
            raise InputError(f"{path}: {error}; fetch or write it again") from None
        if not start:
            raise InputError(f"{path}: expected at least one record, the file is empty")
        if start.startswith(PARQUET_MAGIC):
            from laps_sd.data.parquet import iter_parquet

            yield from iter_parquet(path, file)
        elif b"\0" in start or (start[0] < 32 and start[:1] not in b"\t\n\r"):
            raise InputError(f"{path}: expected JSON lines or Parquet, found binary data")
        elif start.lstrip().startswith(b"["):
            yield from _iter_array(path, file)
        else:
            yield from _iter_lines(path, file, tolerance)


def _iter_lines(path: Path, file: Any, tolerance: Tolerance) -> Iterator[Row]:
    decode = msgspec.json.Decoder().decode
    number = 0
    try:
        # Only a line feed ends a line: str.splitlines would also cut at U+2028 inside a prompt.
        for line in iter(lambda: file.readline(LONGEST_LINE), b""):
            number += 1
            if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
                raise InputError(
                    f"{where(path, 'line', number)}: expected at most {LONGEST_LINE >> 20} MiB, the line is longer"
                )
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if line.isspace():
                continue
            try:
                value = decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                tolerance.reject(f"{where(path, 'line', number)}: expected one JSON object, {_json_fault(line, error)}")
                continue
            yield Row("line", number, value)
    except DamagedFileError as error:
        tolerance.reject(f"{where(path, 'line', number + 1)}: {error}; fetch or write the file again")


def _json_fault(line: bytes, error: Exception) -> str:
    if b"\\ud" in line.lower() and "truncated" in str(error) and line.rstrip().endswith(b"}"):
        return "a text holds a lone surrogate (\\ud800 to \\udfff), which is no character and which UTF-8 cannot hold"
    return f"got {_fragment(line)} ({error})"


def _fragment(line: bytes) -> str:
    text = line[:40].decode("utf-8", "replace").rstrip()
    return repr(text + ("…" if len(line) > 40 else ""))


def _iter_array(path: Path, file: Any) -> Iterator[Row]:
    """A JSON array has no line ends to stream by: it is read whole, up to a limit."""
    try:
        text = file.read(4 * LONGEST_LINE + 1)
        if len(text) > 4 * LONGEST_LINE:
            raise InputError(f"{path}: a JSON array of this size would fill the memory; write JSON lines instead")
        items = msgspec.json.decode(text, type=list[Any])
    except DamagedFileError as error:
        raise InputError(f"{path}: {error}; fetch or write the file again") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: expected a JSON array of records ({error})") from None
    for number, item in enumerate(items, 1):
        yield Row("item", number, item)
