"""Conversations with their answers: ShareGPT, OpenAI messages or Alpaca, from JSON or JSON lines.

Each answer becomes a record whose prompt is the user turn before it; the answers of one conversation are a group. The
files hold text, so lengths are counted with ``--tokenizer``, or estimated, which a column ``tokens_estimated`` says.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from laps_sd.data.canonical import canonical
from laps_sd.data.conversation import conversation
from laps_sd.data.importers.options import ImportOptions, count_tokens
from laps_sd.data.records.bad_rows import Tolerance
from laps_sd.data.records.rows import Row, iter_rows


def rows(path: Path, tolerance: Tolerance, options: ImportOptions) -> Iterator[Row]:
    """Yield the conversations, each with a name for those that have none."""
    name = path.name.split(".")[0]
    for row in iter_rows(path, tolerance):
        yield row._replace(value=(f"{name}/{row.number}", name, row.value))


def convert(value: Any, options: ImportOptions) -> list[dict[str, Any]]:
    """Turn one conversation into the fields of a record per answer."""
    fallback, source, entry = value
    messages = conversation(entry)
    name = f"{source}/{entry['id']}" if isinstance(entry.get("id"), str | int) else fallback
    records: list[dict[str, Any]] = []
    for at, message in enumerate(messages):
        if message["role"] != "assistant" or not any(m["role"] == "user" for m in messages[:at]):
            continue
        asked = canonical(messages=messages[:at])
        fields = {
            "request_id": f"{name}/{len(records)}",
            "prompt": asked.text,
            "turns": asked.turns,
            "prompt_tokens": sum(count_tokens(m["content"], options.tokenizer) for m in messages[:at]),
            **options.capped(count_tokens(message["content"], options.tokenizer)),
            "source": options.source or source,
            "group": name,
        }
        if isinstance(entry.get("model"), str) and options.model is None:
            fields["model"] = entry["model"]
        if options.tokenizer is None:
            fields["tokens_estimated"] = True
        records.append(options.complete(fields))
    if not records:
        raise ValueError("expected a user turn with an answer behind it, found none")
    return records
