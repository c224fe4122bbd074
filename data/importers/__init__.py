"""Other people's files as request records."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from laps_sd.data.importers import arrivals, chat, sglang_bench, sglang_metrics, spec_bench
from laps_sd.data.importers.options import ImportOptions
from laps_sd.data.records.bad_rows import Tolerance
from laps_sd.data.records.reading import itself, records_of
from laps_sd.data.records.rows import Row, iter_rows
from laps_sd.data.records.schema import RequestRecord
from laps_sd.data.records.seen import SeenIds
from laps_sd.errors import InputError

__all__ = ["FORMATS", "Format", "ImportOptions", "import_records"]

Format = Literal["sglang-metrics", "sglang-bench", "spec-bench", "arrivals", "records", "chat"]
FORMATS: tuple[Format, ...] = get_args(Format)


class _Importer(NamedTuple):
    """How the rows of a format are found, and what records a row stands for."""

    rows: Callable[[Path, Tolerance, ImportOptions], Iterator[Row]]
    convert: Callable[[Any, ImportOptions], list[dict[str, Any]]]


_IMPORTERS: dict[Format, _Importer] = {
    "sglang-metrics": _Importer(sglang_metrics.rows, sglang_metrics.convert),
    "sglang-bench": _Importer(sglang_bench.rows, sglang_bench.convert),
    "spec-bench": _Importer(spec_bench.rows, spec_bench.convert),
    "arrivals": _Importer(arrivals.rows, arrivals.convert),
    "chat": _Importer(chat.rows, chat.convert),
    "records": _Importer(
        lambda path, tolerance, options: iter_rows(path, tolerance),
        lambda value, options: [options.complete(fields) for fields in itself(value)],
    ),
}


def import_records(
    kind: Format, sources: Sequence[Path], options: ImportOptions | None = None, tolerance: Tolerance | None = None
) -> Iterator[RequestRecord]:
    """Yield the records of files in somebody else's format, one after the other.

    Parameters
    ----------
    kind
        The format.
    sources
        Files; for ``sglang-metrics`` also the folder that the server wrote to.
    options
        What the files do not say.
    tolerance
        How many bad rows are left out, and who is told.

    Raises
    ------
    InputError
        A file cannot be read, or has a bad row too many.
    """
    options = options or ImportOptions()
    tolerance = tolerance or Tolerance()
    seen = SeenIds()
    rows, convert = _IMPORTERS[kind]
    for path in _files(kind, sources):
        yield from records_of(
            rows(path, tolerance, options), path, tolerance, lambda value: convert(value, options), seen
        )


def _files(kind: Format, sources: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for source in sources:
        if kind == "sglang-metrics" and source.is_dir():
            found = sorted(source.glob(sglang_metrics.FILE_PATTERN))
            if not found:
                raise InputError(f"{source}: expected files named {sglang_metrics.FILE_PATTERN}, found none")
            files += found
        else:
            files.append(source)
    return files
