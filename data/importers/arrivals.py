"""Arrival traces: CSV with ``arrival_s``, ``input_tokens`` and ``output_tokens``; other columns are kept."""

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from laps_sd.data.importers.base import Importer, Place
from laps_sd.data.records.bad_rows import Row, Tolerance, where
from laps_sd.data.records.opening import DamagedFileError, open_bytes
from laps_sd.errors import InputError

COLUMNS = ("arrival_s", "input_tokens", "output_tokens")


class Arrivals(Importer):
    """When requests came and how long they were, a line each."""

    summary = "arrival times (CSV: `arrival_s`, `input_tokens`, `output_tokens`)"
    example = "trace.csv --out trace.parquet"
    unsaid = "how a request ended; taken as `stop`."
    uses = frozenset({"max_new_tokens"})

    def rows(self, path: Path, tolerance: Tolerance) -> Iterator[Row]:
        """Yield the lines below the header, counted from 1."""
        number = 0
        with open_bytes(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
            lines = csv.reader(text)
            try:
                header = next(lines, [])
                if not set(COLUMNS) <= set(header):
                    raise InputError(
                        f"{path}: line 1: expected the columns {', '.join(COLUMNS)}, got {', '.join(header)[:80]!r}"
                    )
                for number, cells in enumerate(lines, 1):
                    if not cells:
                        continue
                    if len(cells) != len(header):
                        tolerance.reject(
                            f"{where(path, 'line', lines.line_num)}: expected {len(header)} values, got {len(cells)}"
                        )
                        continue
                    yield Row("line", lines.line_num, (number, dict(zip(header, cells, strict=True))))
            except DamagedFileError as error:
                tolerance.reject(f"{where(path, 'line', number + 2)}: {error}; fetch or write the file again")
            except (csv.Error, UnicodeDecodeError) as error:
                raise InputError(f"{path}: expected a CSV file in UTF-8 ({error})") from None

    def convert(self, value: Any, place: Place) -> Iterable[dict[str, Any]]:
        """Return the fields of one line. Such traces do not say how a request ended: taken as ``stop``."""
        number, cells = value
        extra = {column: _number(cell) for column, cell in cells.items() if column not in COLUMNS and cell != ""}
        fields = {
            "request_id": f"{place.file}/{number}",
            "source": self.options.source or place.file,
            "arrival_s": _number(cells["arrival_s"]),
            "prompt_tokens": _number(cells["input_tokens"]),
            **self.options.capped(_number(cells["output_tokens"])),
        }
        return [self.options.complete({**extra, **fields})]


def _number(cell: str) -> int | float | str:
    """Return what the cell holds; text that is no number is left for the check to complain about."""
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell
