"""The records of a run that has not ended yet: one line each, on disk before the next request starts."""

from collections.abc import Iterable
from pathlib import Path

from laps_sd.data.records.reading import read_records
from laps_sd.data.records.schema import RequestRecord
from laps_sd.data.records.writing import to_json_line, write_records
from laps_sd.errors import InputError


class Journal:
    """Keeps finished records in ``OUT.partial.jsonl`` until :meth:`close` turns them into OUT.

    Parameters
    ----------
    out
        Where the trace goes in the end.
    resume
        Take up what an earlier run left, instead of refusing to write over it.

    Raises
    ------
    InputError
        Records of an earlier run are there and ``resume`` is false.
    """

    def __init__(self, out: Path, resume: bool) -> None:
        self.out = out
        self.path = out.with_name(f"{out.name}.partial.jsonl")
        if not resume:
            for path in (self.path, out):
                if path.exists():
                    raise InputError(f"{path} holds an earlier run; add --resume or choose another name")
        _drop_half_line(self.path)
        self.records = _read(out) + _read(self.path)
        self.done = {record.request_id for record in self.records}
        try:
            self._file = self.path.open("ab")
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written ({error.strerror}); check the folder") from None

    def append(self, record: RequestRecord) -> None:
        """Put one record on disk."""
        self._file.write(to_json_line(record))
        self._file.flush()
        self.records.append(record)
        self.done.add(record.request_id)

    def stop(self) -> str:
        """End without the final file; the journal stays for a later run, and what is returned says so."""
        self._file.close()
        if not self.path.stat().st_size:
            self.path.unlink()
            return ""
        return f"; {len(self.records)} records are kept in {self.path}, go on with --resume"

    def close(self) -> int:
        """Write OUT, ordered by arrival, remove the journal, and return the number of records."""
        self._file.close()
        rows = write_records(self.out, _by_arrival(self.records))
        self.path.unlink()
        return rows


def _by_arrival(records: Iterable[RequestRecord]) -> list[RequestRecord]:
    return sorted(records, key=lambda record: record.arrival_s or 0.0)


def _read(path: Path) -> list[RequestRecord]:
    return read_records(path) if path.exists() and path.stat().st_size else []


def _drop_half_line(path: Path) -> None:
    """A run that was killed while writing leaves a line without its end: that request is sent again."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        text = file.read()
        if text and not text.endswith(b"\n"):
            file.truncate(text.rfind(b"\n") + 1)
