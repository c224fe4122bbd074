"""Records in another file, or in several."""

from collections.abc import Iterable
from typing import Any

from laps_sd.data.importers.base import Importer, Place
from laps_sd.data.records.reading import itself


class Records(Importer):
    """The record schema itself: rows are checked, completed and put into one file."""

    summary = "records in another file, or several: JSON lines or Parquet with the fields of a record"
    example = "a.jsonl b.parquet --out trace.parquet"

    def convert(self, value: Any, place: Place) -> Iterable[dict[str, Any]]:
        """Return the fields of one record, completed."""
        return [self.options.complete(fields) for fields in itself(value)]
