"""An importer: log lines that are JSON objects with ``in`` and ``out``, in tokens."""

from collections.abc import Iterable
from typing import Any

from laps_sd.data.importers import Importer, Place


class PlainLog(Importer):
    """A request for each line."""

    summary = "log lines of the example: `in` and `out`, tokens"
    example = "server.log --out trace.parquet"
    unsaid = "how a request ended; taken as `stop`."
    uses = frozenset({"max_new_tokens"})

    def convert(self, value: Any, place: Place) -> Iterable[dict[str, Any]]:
        """Return the fields of one record; an error starts with the name of the field."""
        if not isinstance(value, dict) or not {"in", "out"} <= value.keys():
            raise ValueError("in, out: expected a number of tokens each")
        yield self.options.complete(
            {"request_id": place.name, "prompt_tokens": value["in"], **self.options.capped(value["out"])}
        )
