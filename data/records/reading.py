"""Read request records from JSON lines or Parquet, a block at a time whatever the size of the file."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from laps_sd.data.records.bad_rows import OnBad, Row, Tolerance, to_record, where
from laps_sd.data.records.rows import iter_rows
from laps_sd.data.records.schema import RequestRecord
from laps_sd.data.records.seen import SeenIds
from laps_sd.errors import InputError

#: Turns one row of a file into the fields of the records that it stands for.
Convert = Callable[[Any], Iterable[dict[str, Any]]]

_BLOCK_ROWS = 256
_BLOCK_CHARS = 4 << 20


class NoRecordError(InputError):
    """A file was read to its end, and nothing in it was a record."""


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


def itself(value: Any) -> Iterable[dict[str, Any]]:
    """The :data:`Convert` of a file that holds records already."""
    if not isinstance(value, dict):
        raise ValueError(f"expected an object with the fields of a record, got {type(value).__name__}")
    return (value,)


def records_of(
    rows: Iterable[Row],
    path: Path,
    tolerance: Tolerance,
    convert: Convert = itself,
    seen: SeenIds | None = None,
) -> Iterator[RequestRecord]:
    """Turn rows into records, leaving out bad ones and repeated ids as far as ``tolerance`` goes.

    Parameters
    ----------
    seen
        Ids of other files that must not come again.

    Raises
    ------
    InputError
        One bad row too many, or no record at all.
    """
    seen = seen or SeenIds()
    found = 0
    # The place of each record and not its row: rows that live on would cost half of the speed (garbage collection).
    numbers: list[int] = []
    block: list[RequestRecord] = []
    size = 0
    unit = "row"
    for unit, number, value in rows:
        try:
            for fields in convert(value):
                record = to_record(fields)
                block.append(record)
                numbers.append(number)
                size += len(record.prompt or "")
        except ValueError as error:
            tolerance.reject(f"{where(path, unit, number)}: {error}")
        if len(block) >= _BLOCK_ROWS or size >= _BLOCK_CHARS:
            for record in _without_repeats(block, unit, numbers, path, tolerance, seen):
                found += 1
                yield record
            block, numbers, size = [], [], 0
    for record in _without_repeats(block, unit, numbers, path, tolerance, seen):
        found += 1
        yield record
    if not found:
        raise NoRecordError(f"{path}: expected at least one record, found none that can be used")


def _without_repeats(
    block: list[RequestRecord], unit: str, numbers: list[int], path: Path, tolerance: Tolerance, seen: SeenIds
) -> Iterator[RequestRecord]:
    repeated = set(seen.repeated([record.request_id for record in block]))
    for index, record in enumerate(block):
        if index in repeated:
            tolerance.reject(
                f"{where(path, unit, numbers[index])}: request_id: expected a name that no earlier row has, "
                f"got {record.request_id!r} again"
            )
        else:
            yield record
