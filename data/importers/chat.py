"""Conversations with their answers: ShareGPT, OpenAI messages or Alpaca, from JSON or JSON lines.

Each answer becomes a record whose prompt is the user turn before it; the answers of one conversation are a group. The
files hold text, so lengths are counted with ``--tokenizer``, or estimated, which a column ``tokens_estimated`` says.
"""

from collections.abc import Iterable
from typing import Any

from laps_sd.data.canonical import canonical
from laps_sd.data.conversation import conversation
from laps_sd.data.importers.base import Importer, Place
from laps_sd.data.importers.options import count_tokens


class Chat(Importer):
    """Conversations in any of three shapes, an object each."""

    summary = "ShareGPT, OpenAI messages or Alpaca"
    example = "chats.json --tokenizer MODEL --out trace.parquet"
    unsaid = (
        "lengths in tokens. Without `--tokenizer` they are estimated from words, and a column `tokens_estimated` "
        "says so."
    )
    uses = frozenset({"tokenizer", "max_new_tokens"})

    def convert(self, value: Any, place: Place) -> Iterable[dict[str, Any]]:
        """Return the fields of a record for each answer of one conversation."""
        messages = conversation(value)
        name = f"{place.file}/{value['id']}" if isinstance(value.get("id"), str | int) else place.name
        records: list[dict[str, Any]] = []
        for at, message in enumerate(messages):
            if message["role"] != "assistant" or not any(m["role"] == "user" for m in messages[:at]):
                continue
            asked = canonical(messages=messages[:at])
            fields = {
                "request_id": f"{name}/{len(records)}",
                "prompt": asked.text,
                "turns": asked.turns,
                "prompt_tokens": sum(count_tokens(m["content"], self.options.tokenizer) for m in messages[:at]),
                **self.options.capped(count_tokens(message["content"], self.options.tokenizer)),
                "source": self.options.source or place.file,
                "group": name,
            }
            if isinstance(value.get("model"), str) and self.options.model is None:
                fields["model"] = value["model"]
            if self.options.tokenizer is None:
                fields["tokens_estimated"] = True
            records.append(self.options.complete(fields))
        if not records:
            raise ValueError("expected a user turn with an answer behind it, found none")
        return records

    def remarks(self) -> list[str]:
        """Return what was passed over, and whether lengths are estimates."""
        estimated = (
            [] if self.options.tokenizer else ["lengths are estimated from words: give --tokenizer for exact ones"]
        )
        return [*super().remarks(), *estimated]
