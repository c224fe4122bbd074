"""Arrival traces: when requests came and how long they were, as CSV or JSON lines.

The public traces are read as they are, told apart by their columns: Azure's (2023 and 2024), BurstGPT, Mooncake's,
those of Alibaba's Bailian, and Vidur's. Columns that are not named here are kept.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Any

from laps_sd.data.importers.base import Importer, Place
from laps_sd.data.importers.options import ImportOptions
from laps_sd.data.records.bad_rows import Row, Tolerance, where
from laps_sd.data.records.opening import DamagedFileError, open_bytes
from laps_sd.data.records.rows import iter_rows
from laps_sd.errors import InputError

#: Seconds of one unit of time.
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
#: Tokens a second that a slow server still gives one request: a trace is sparse when no request meets another at that.
_SLOW, _SPARSE = 10.0, 10.0
_ISO_DIGITS = 26  # "2023-11-16 18:15:46.680590": Azure's seventh digit is more than Python's clock knows


@dataclass(frozen=True)
class Layout:
    """The columns of one kind of trace.

    Attributes
    ----------
    name : str
        Whose it is.
    columns : mapping of str to str
        From the file's column, in lower case, to the field of the record.
    time : str or None
        The column of times; None where the file has none.
    unit : str
        Unit of its numbers, a key of ``UNITS``. Dates are understood in any case.
    from_first : bool
        Whether times count from the first request; else they are seconds since the trace began already.
    empty_failed : bool
        Whether an answer of no tokens is a request that failed.
    """

    name: str
    columns: Mapping[str, str]
    time: str | None
    unit: str = "s"
    from_first: bool = True
    empty_failed: bool = False

    @property
    def needed(self) -> set[str]:
        """The columns by which the layout is known."""
        required = {column for column, name in self.columns.items() if name in ("prompt_tokens", "output_tokens")}
        return required | ({self.time} if self.time else set())


def _lengths(prompt: str, output: str, **more: str) -> dict[str, str]:
    return {prompt: "prompt_tokens", output: "output_tokens", **more}


#: Where two fit, the first one holds.
LAYOUTS = (
    Layout("laps-sd", _lengths("input_tokens", "output_tokens"), "arrival_s", from_first=False),
    Layout("Azure", _lengths("contexttokens", "generatedtokens"), "timestamp"),
    Layout(
        "BurstGPT",
        {**_lengths("request tokens", "response tokens", model="model"), "session id": "group", "log type": "category"},
        "timestamp",
        empty_failed=True,
    ),
    # Bailian's has a chat_id besides Mooncake's columns, and seconds.
    Layout(
        "Bailian",
        {**_lengths("input_length", "output_length", type="category"), "chat_id": "chat_id"},
        "timestamp",
    ),
    Layout("Mooncake", _lengths("input_length", "output_length"), "timestamp", unit="ms"),
    Layout("Vidur", _lengths("num_prefill_tokens", "num_decode_tokens"), "arrived_at"),
    Layout("Vidur without arrivals", _lengths("num_prefill_tokens", "num_decode_tokens"), None),
)
#: By these a layout is told from another with the same times and lengths.
_MARKS = {"Bailian": {"chat_id"}}


def layout_of(columns: Iterable[str]) -> Layout | None:
    """Return the layout of a file with these columns, None where there is none."""
    known = {_plain(column) for column in columns}
    return next((one for one in LAYOUTS if one.needed | _MARKS.get(one.name, set()) <= known), None)


def _plain(column: str) -> str:
    return " ".join(column.split()).lower()


@dataclass
class _Span:
    """What was read: how many requests, from when to when, and how many tokens they gave."""

    requests: int = 0
    first: float = field(default=float("inf"))
    last: float = field(default=float("-inf"))
    tokens: int = 0

    def add(self, seconds: Any, tokens: Any) -> None:
        self.requests += 1
        self.tokens += tokens if isinstance(tokens, int) else 0
        if isinstance(seconds, int | float):
            self.first, self.last = min(self.first, seconds), max(self.last, seconds)

    @property
    def seconds(self) -> float:
        return self.last - self.first if self.requests and isfinite(self.last) else 0.0

    @property
    def sparse(self) -> bool:
        """Whether the gaps between requests are many times what even a slow server needs for one of them."""
        if self.requests < 3:
            return False
        return self.seconds / self.requests > _SPARSE * max(self.tokens / self.requests / _SLOW, 1.0)


class Arrivals(Importer):
    """When requests came and how long they were, a line each."""

    summary = (
        "arrival times and lengths (CSV or JSON lines): Azure's, BurstGPT, Mooncake's, Bailian's and Vidur's traces as "
        "they are, or the columns `arrival_s`, `input_tokens`, `output_tokens`"
    )
    example = "trace.csv --out trace.parquet"
    unsaid = (
        "how a request ended; taken as `stop`, but for BurstGPT's answers of no tokens, which failed. Times are "
        "seconds (Mooncake's: milliseconds; `--time-unit` says otherwise) and count from the first request of each "
        "file, but for `arrival_s`, which is taken as it is."
    )
    uses = frozenset({"max_new_tokens", "time_unit"})

    def __init__(self, options: ImportOptions) -> None:
        super().__init__(options)
        if options.time_unit is not None and options.time_unit not in UNITS:
            raise InputError(f"--time-unit {options.time_unit}: expected one of {', '.join(UNITS)}")
        self._span = _Span()
        self._layouts: dict[str, Layout] = {}

    def rows(self, path: Path, tolerance: Tolerance) -> Iterator[Row]:
        """Yield the rows, each with its layout and the time of the first request."""
        layout, start = _scanned(path)
        if layout is not None:
            self._layouts.setdefault(layout.name, layout)
        for number, row in _raw_rows(path, tolerance):
            yield row._replace(value=(number, layout, start, row.value))

    def convert(self, value: Any, place: Place) -> Iterable[dict[str, Any]]:
        """Return the fields of one line."""
        number, layout, start, cells = value
        if layout is None or not isinstance(cells, Mapping):
            raise ValueError(f"expected an object with arrival time and lengths, got {type(cells).__name__}")
        fields: dict[str, Any] = {"request_id": f"{place.file}/{number}", "source": self.options.source or place.file}
        extra: dict[str, Any] = {}
        for column, cell in cells.items():
            name, content = layout.columns.get(_plain(column)), _number(cell)
            if _plain(column) == layout.time:
                fields["arrival_s"] = self._seconds(layout, column, content, start)
            elif name in ("prompt_tokens", "output_tokens"):
                fields[name] = _whole(content)
            elif name in ("model", "category", "group") and content not in ("", None):
                fields[name] = str(content)
            elif content not in ("", None):
                extra[column] = content
        output = fields.pop("output_tokens", None)
        ended = "abort" if layout.empty_failed and output == 0 else "stop"
        self._span.add(fields.get("arrival_s"), output)
        return [self.options.complete({**extra, **fields, **self.options.capped(output, ended)})]

    def _seconds(self, layout: Layout, column: str, content: Any, start: float) -> Any:
        moment, told = _moment(content), self.options.time_unit
        if moment is None or (isinstance(content, int | float) and not layout.from_first and told is None):
            return content  # the check of the record says what was expected
        try:
            unit = 1.0 if isinstance(content, str) else UNITS[told or layout.unit]
            seconds = (moment - (start if layout.from_first else 0.0)) * unit
        except OverflowError:
            return content
        return round(seconds, 6)  # of a date as a float nothing finer is left

    def remarks(self) -> list[str]:
        """Return whose trace it is, its span and pace, and a question where it is so sparse that a unit is wrong."""
        span, said = self._span, super().remarks()
        foreign = [name for name in self._layouts if name != "laps-sd"]
        kind = f", read as {' and '.join(foreign)}" if foreign else ""
        if not span.seconds:
            return [*said, f"{span.requests} requests{kind}, without times that tell them apart"]
        pace = (span.requests - 1) / span.seconds
        said.append(f"{span.requests} requests in {in_words(span.seconds)}, {pace:.3g} per second{kind}")
        if span.sparse:
            unit = self.options.time_unit or next(iter(self._layouts.values())).unit
            said.append(
                f"so few that none would ever wait for another: are its times really in {unit}? "
                "--time-unit ms (or us, ns) reads them otherwise"
            )
        return said


def in_words(seconds: float) -> str:
    """Return a span of time as people say it.

    Examples
    --------
    >>> in_words(93.2)
    '93.2 s'
    >>> in_words(90_000)
    '25.0 hours'
    >>> in_words(3_564_000)
    '41.2 days'
    """
    for unit, length in (("days", 86400.0), ("hours", 3600.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:,.1f} s"


def _scanned(path: Path) -> tuple[Layout | None, float]:
    """Return the layout of a file, if it has rows, and its earliest time: files need not be in the order of time."""
    layout: Layout | None = None
    start = float("inf")
    for _, row in _raw_rows(path, Tolerance(2**62)):
        if not isinstance(row.value, Mapping):
            continue
        layout = layout or _known(path, row, row.value)
        if layout.time is None or not layout.from_first:
            break
        found = next((cell for column, cell in row.value.items() if _plain(column) == layout.time), None)
        moment = _moment(_number(found))
        if moment is not None:
            start = min(start, moment)
    return layout, start if isfinite(start) else 0.0


def _known(path: Path, row: Row, cells: Mapping[str, Any]) -> Layout:
    layout = layout_of(cells)
    if layout is None:
        place = "line 1" if row.unit == "line" else f"{row.unit} {row.number}"
        raise InputError(
            f"{path}: {place}: expected the columns arrival_s, input_tokens, output_tokens, or those of "
            f"{', '.join(one.name for one in LAYOUTS[1:-1])}; got {', '.join(map(str, cells))[:80]!r}"
        )
    return layout


def _raw_rows(path: Path, tolerance: Tolerance) -> Iterator[tuple[int, Row]]:
    """Yield numbered rows: of JSON lines, an array or Parquet if the file starts like one, else of CSV."""
    with open_bytes(path) as file:
        try:
            start = file.peek(64)[:64].removeprefix(b"\xef\xbb\xbf").lstrip()
        except DamagedFileError as error:
            raise InputError(f"{path}: {error}; fetch or write it again") from None
    if start[:1] in (b"{", b"[") or start.startswith(b"PAR1"):
        for row in iter_rows(path, tolerance):
            yield row.number, row
    else:
        yield from _csv_rows(path, tolerance)


def _csv_rows(path: Path, tolerance: Tolerance) -> Iterator[tuple[int, Row]]:
    number = 0
    with open_bytes(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
        lines = csv.reader(text)
        try:
            header = next(lines, [])
            if layout_of(header) is None:
                _known(path, Row("line", 1, None), dict.fromkeys(header))
            for number, cells in enumerate(lines, 1):
                if not cells:
                    continue
                if len(cells) != len(header):
                    tolerance.reject(
                        f"{where(path, 'line', lines.line_num)}: expected {len(header)} values, got {len(cells)}"
                    )
                    continue
                yield number, Row("line", lines.line_num, dict(zip(header, cells, strict=True)))
        except DamagedFileError as error:
            tolerance.reject(f"{where(path, 'line', number + 2)}: {error}; fetch or write the file again")
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(f"{path}: expected a CSV file in UTF-8 ({error})") from None


def _number(cell: Any) -> Any:
    """Return what the cell holds; text that is no number is left for the check to complain about."""
    if not isinstance(cell, str):
        return cell
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell


def _whole(content: Any) -> Any:
    """Return a whole number that was written as a float (pandas writes 374.0) as one."""
    return int(content) if isinstance(content, float) and content.is_integer() else content


def _moment(content: Any) -> float | None:
    """Return a time as a number: what the cell holds, or the seconds of a date (without a zone: UTC)."""
    if isinstance(content, bool) or content is None:
        return None
    if isinstance(content, int | float):
        return float(content) if abs(content) < 2**63 else None
    try:
        text = str(content).strip()
        clock, zone = (text[:-6], text[-6:]) if text[-6:-5] in ("+", "-") and text[-3:-2] == ":" else (text, "+00:00")
        return datetime.fromisoformat(clock.removesuffix("Z")[:_ISO_DIGITS] + zone).timestamp()
    except (ValueError, OverflowError):
        return None
