"""What the verbs share: JSON results, and the table of policies that ``simulate``, ``bench`` and ``demo`` print."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laps_sd.errors import InputError
from laps_sd.files import target_of, write_text

if TYPE_CHECKING:
    from rich.table import Table


def check_writable(path: Path) -> None:
    """Refuse a result file before the work begins, not after it.

    Raises
    ------
    InputError
        Nothing can be written there.
    """
    _probe(path, target_of(path).parent)


def check_folder(path: Path) -> None:
    """Refuse a folder for results before the work begins; it is made when there is something to put into it.

    Raises
    ------
    InputError
        There is something else of that name, or nothing can be written there.
    """
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is no folder; name one for the results")
    _probe(path, path.absolute())


def _probe(path: Path, folder: Path) -> None:
    try:
        with tempfile.NamedTemporaryFile(dir=next(place for place in (folder, *folder.parents) if place.exists())):
            pass
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error


def check_outputs(outputs: Iterable[Path | None], inputs: Iterable[Path | str | None] = ()) -> None:
    """Refuse result files that cannot be written, or that would take the place of an input or of each other.

    Raises
    ------
    InputError
        With the first such file.
    """
    read = {Path(os.path.realpath(path)) for path in inputs if path is not None}
    written: set[Path] = set()
    for path in outputs:
        if path is None:
            continue
        real = target_of(path)
        if real in read:
            raise InputError(f"{path} is read here and would be overwritten; name another file for the results")
        if real in written:
            raise InputError(f"{path} is named for two results; name a file for each")
        written.add(real)
        check_writable(path)


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write ``values`` as UTF-8 JSON; a reader never sees half of it. NaN is refused: unknown is null.

    Raises
    ------
    InputError, WorkError
        The file cannot be written.
    """
    write_text(path, json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def policy_table(policies: Mapping[str, Mapping[str, Any]], title: str = "") -> Table:
    """Return the comparison that people read, for a terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    headers, rows = policy_rows(policies)
    table = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=0)
    table.add_column(headers[0], no_wrap=True)
    for name in headers[1:]:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def policy_rows(policies: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return (headers, rows) of the comparison, one row per policy; times are seconds.

    A column that tells nothing is left out, so that the table fits a terminal of 80 columns.
    """
    fcfs = _at(policies.get("fcfs", {}), "latency_s", "mean")
    columns: dict[str, list[str]] = {"policy": list(policies)}
    for header, value in _COLUMNS.items():
        values = [value(figures) for figures in policies.values()]
        if any(v is not None for v in values) and (header != "failed" or any(values)):
            columns[header] = [_number(v) for v in values]
        if header == "mean s" and fcfs:
            columns["/ fcfs"] = [_number(None if v is None else v / fcfs) for v in values]
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)]


_NOTHING = "–"
_COLUMNS: dict[str, Callable[[Mapping[str, Any]], float | None]] = {
    "mean s": lambda f: _at(f, "latency_s", "mean"),
    "p50": lambda f: _at(f, "latency_s", "p50"),
    "p99": lambda f: _at(f, "latency_s", "p99"),
    "TTFT": lambda f: _at(f, "ttft_s", "mean"),
    "slowdown": lambda f: f.get("slowdown_mean"),
    "gap": lambda f: f.get("gap_closed"),
    "accept": lambda f: f.get("accept_length_mean"),
    "preempts": lambda f: f.get("preemptions"),
    "recomp": lambda f: f.get("recomputed_tokens"),
    "failed": lambda f: f.get("failed"),
}


def _at(figures: Mapping[str, Any], part: str, key: str) -> float | None:
    spread = figures.get(part)
    return None if spread is None else spread[key]


def _number(value: float | None) -> str:
    if value is None:
        return _NOTHING
    whole = abs(value) >= 1000 or float(value).is_integer()
    return f"{value:,.0f}" if whole else f"{value:.3g}"
