"""Other people's files as request records. Each format is a class in one file, listed in `laps_sd.extensions`."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from laps_sd.data.importers.base import Importer, Place
from laps_sd.data.importers.options import ImportOptions
from laps_sd.data.records.bad_rows import Tolerance
from laps_sd.data.records.schema import RequestRecord
from laps_sd.errors import InputError
from laps_sd.extensions import IMPORTERS

__all__ = ["ImportOptions", "Importer", "Place", "formats_list", "formats_table", "import_records", "importer_class"]


def importer_class(name: str) -> type[Importer]:
    """Return the importer of a format.

    Raises
    ------
    InputError
        There is none of that name, or what is registered under it is no importer.
    """
    try:
        found = IMPORTERS.load(name)
    except ValueError as error:
        raise InputError(str(error)) from error
    if not (isinstance(found, type) and issubclass(found, Importer)):
        raise InputError(f"importer {name!r} is not a class derived from laps_sd.data.importers.Importer: {found!r}")
    return found


def import_records(
    name: str, sources: Sequence[Path], options: ImportOptions | None = None, tolerance: Tolerance | None = None
) -> Iterator[RequestRecord]:
    """Yield the records of files in somebody else's format, one after the other.

    Parameters
    ----------
    name : str
        The format; `laps_sd.extensions.IMPORTERS` knows them all.
    sources : sequence of Path
        Files; for ``sglang-metrics`` also the folder that the server wrote to.
    options : ImportOptions, optional
        What the files do not say.
    tolerance : Tolerance, optional
        How many bad rows are left out, and who is told.

    Raises
    ------
    InputError
        The format is not known, a file cannot be read, or has a bad row too many.
    """
    yield from importer_class(name)(options or ImportOptions()).records(sources, tolerance)


def formats_table() -> str:
    """Return every known format as a Markdown table: what it is, and the command that reads it."""
    lines = ["| you have | command |", "|---|---|"]
    for name in IMPORTERS.names():
        kind = importer_class(name)
        lines.append(f"| {kind.summary} | `laps-sd import {name} {kind.example}` |")
    return "\n".join(lines) + "\n"


def formats_list() -> str:
    """Return what files of each known format do not say, as a Markdown list."""
    kinds = {name: importer_class(name) for name in IMPORTERS.names()}
    return "".join(f"- **{name}**: {kind.unsaid}\n" for name, kind in kinds.items() if kind.unsaid)
