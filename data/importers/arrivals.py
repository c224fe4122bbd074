"""Arrival traces: CSV with ``arrival_s``, ``input_tokens`` and ``output_tokens``; other columns are kept."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from laps_sd.data.importers.options import ImportOptions
from laps_sd.data.records.bad_rows import Tolerance, where
from laps_sd.data.records.opening import DamagedFileError, open_bytes
from laps_sd.data.records.rows import Row
from laps_sd.errors import InputError

COLUMNS = ("arrival_s", "input_tokens", "output_tokens")


def rows(path: Path, tolerance: Tolerance, options: ImportOptions) -> Iterator[Row]:
    """Yield the lines below the header, each with the name of the trace."""
    name = path.name.split(".")[0]
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
                yield Row("line", lines.line_num, (f"{name}/{number}", name, dict(zip(header, cells, strict=True))))
        except DamagedFileError as error:
            tolerance.reject(f"{where(path, 'line', number + 2)}: {error}; fetch or write the file again")
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(f"{path}: expected a CSV file in UTF-8 ({error})") from None


def convert(value: Any, options: ImportOptions) -> list[dict[str, Any]]:
    """Turn one line into the fields of a record. Such traces do not say how a request ended: taken as ``stop``."""
    request_id, name, cells = value
    extra = {column: _number(cell) for column, cell in cells.items() if column not in COLUMNS and cell != ""}
    fields = {
        "request_id": request_id,
        "source": options.source or name,
        "arrival_s": _number(cells["arrival_s"]),
        "prompt_tokens": _number(cells["input_tokens"]),
        **options.capped(_number(cells["output_tokens"])),
    }
    return [options.complete({**extra, **fields})]


def _number(cell: str) -> int | float | str:
    """Return what the cell holds; text that is no number is left for the check to complain about."""
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell
