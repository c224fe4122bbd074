"""What an importer is: a class in one file that turns one row of somebody else's format into fields of records."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from laps_sd.data.importers.options import ImportOptions
from laps_sd.data.progress.answers import AnswerCounter
from laps_sd.data.records.bad_rows import Row, Tolerance
from laps_sd.data.records.reading import NoRecordError, records_of
from laps_sd.data.records.rows import iter_rows
from laps_sd.data.records.schema import RequestRecord
from laps_sd.data.records.seen import SeenIds
from laps_sd.errors import InputError

#: Endings of file names that say how a file is written and not what it is.
_SUFFIXES = frozenset({".json", ".jsonl", ".ndjson", ".csv", ".parquet", ".log", ".txt", ".gz", ".zst"})


class Place(NamedTuple):
    """Where a row stands.

    Attributes
    ----------
    file : str
        Name of the file without its endings, with as many of its folders as tell it from the other files.
    number : int
        Number of the row in the file, from 1.
    """

    file: str
    number: int

    @property
    def name(self) -> str:
        """A name for the row that no other row of the import has."""
        return f"{self.file}/{self.number}"


class Importer:
    """Reads one format. Derive from it and register the class under the name of the format (see CONTRIBUTING.md).

    Parameters
    ----------
    options : ImportOptions
        What the files do not say and the user does.

    Attributes
    ----------
    summary : str
        What the format is, for whoever looks for it; Markdown.
    example : str
        What follows ``laps-sd import NAME`` in the documentation.
    unsaid : str
        What files of this format do not say, and what is done about it; Markdown, empty when nothing is missing.
    uses : frozenset of str
        The options of `ImportOptions` besides ``model``, ``draft`` and ``source`` that it reads.
    notes : Counter of str
        What was passed over, and how often; told at the end of an import.
    answers : AnswerCounter
        Counts what an answer said, for formats that hold answers.
    """

    summary: ClassVar[str]
    example: ClassVar[str] = "FILE --out trace.parquet"
    unsaid: ClassVar[str] = ""
    uses: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, options: ImportOptions) -> None:
        self.options = options
        self.notes: Counter[str] = Counter()
        self.answers = AnswerCounter(options.tokenizer)

    def files(self, source: Path) -> list[Path]:
        """Return the files that ``source`` stands for: itself, unless the format is a folder of files."""
        return [source]

    def rows(self, path: Path, tolerance: Tolerance) -> Iterator[Row]:
        """Yield the rows of one file: JSON lines, the items of a JSON array, or those of a Parquet file.

        Parameters
        ----------
        path : Path
            The file.
        tolerance : Tolerance
            Told about rows that cannot be read at all.

        Raises
        ------
        InputError
            The file cannot be read.
        """
        yield from iter_rows(path, tolerance)

    def convert(self, value: Any, place: Place) -> Iterable[dict[str, Any]]:
        """Return the fields of every record that one row stands for; unknown names are kept as ``extra``.

        Parameters
        ----------
        value : object
            What `rows` gave.
        place : Place
            Where it stands: a row that names no request is named after its place.

        Raises
        ------
        ValueError
            The row is not of this format; the text starts with the name of the field at fault.
        """
        raise NotImplementedError

    def remarks(self) -> list[str]:
        """Return what the user should know once everything is read, a sentence each."""
        return [f"{times} {what}" for what, times in self.notes.items()]

    def records(self, sources: Sequence[Path], tolerance: Tolerance | None = None) -> Iterator[RequestRecord]:
        """Yield the records of files, one after the other.

        Parameters
        ----------
        sources : sequence of Path
            Files, or folders where the format is a folder.
        tolerance : Tolerance, optional
            How many bad rows are left out, and who is told. By default the first one ends the import.

        Raises
        ------
        InputError
            A file cannot be read, or has a bad row too many.
        """
        tolerance = tolerance or Tolerance()
        files = [file for source in sources for file in self.files(source)]
        seen = SeenIds()
        for path, name in zip(files, names_of(files), strict=True):
            placed = (row._replace(value=(row.value, Place(name, row.number))) for row in self.rows(path, tolerance))
            try:
                yield from records_of(placed, path, tolerance, lambda at: self._converted(*at), seen)
            except NoRecordError as error:
                raise InputError("; ".join([str(error), *Importer.remarks(self)])) from None

    def _converted(self, value: Any, place: Place) -> list[dict[str, Any]]:
        try:
            return [self._checked(fields) for fields in self.convert(value, place)]
        except (TypeError, LookupError, AttributeError, ArithmeticError) as error:
            # Somewhere in the row stands a value of another kind than the format has there.
            why = " ".join(str(error).split())[:100]
            raise ValueError(f"expected a row of this format, got a value of another kind in it ({why})") from error

    def _checked(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Refuse an answer that was cut below the very cap that the user stated for the run."""
        cap, output = self.options.max_new_tokens, fields.get("output_tokens")
        if cap is not None and isinstance(output, int) and fields.get("finish_reason") == "length" and output < cap:
            raise ValueError(
                f"finish_reason: expected `stop` for an answer of {output} tokens, below the cap of {cap} that "
                "--max-new-tokens states, got `length`; state the true cap, or none"
            )
        return fields


def names_of(files: Sequence[Path]) -> list[str]:
    """Return a name for each file: without its endings, with as many folders before it as tell all of them apart.

    Examples
    --------
    >>> names_of([Path("runs/a/answers.json"), Path("runs/b/answers.json")])
    ['a/answers', 'b/answers']
    >>> names_of([Path("runs/v1.0.jsonl.gz")])
    ['v1.0']
    """
    parts = [path.absolute().parts for path in files]
    depth = 1
    deepest = max((len(part) for part in parts), default=1)
    while depth < deepest and len({part[-depth:] for part in parts}) < len(set(parts)):
        depth += 1
    return ["/".join((*path.absolute().parts[-depth:-1], _bare(path.name))) for path in files]


def _bare(name: str) -> str:
    stem, dot, suffix = name.rpartition(".")
    return _bare(stem) if stem and dot and f".{suffix.lower()}" in _SUFFIXES else name
