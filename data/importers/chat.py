"""Conversations with their answers: ShareGPT, OpenAI messages, Alpaca or plain pairs, from JSON or JSON lines.

Each answer becomes a record whose prompt is the user turn before it; the answers of one conversation are a group. The
files hold text, so lengths are counted with ``--tokenizer``, or estimated, which a column ``tokens_estimated`` says.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from laps_sd.data.canonical import canonical
from laps_sd.data.conversation import Turn, read_conversation
from laps_sd.data.importers.base import Importer, Place
from laps_sd.data.importers.options import count_tokens
from laps_sd.data.tokenizer import templated_ids

#: What public files call the id of a conversation.
_IDS = ("id", "conversation_id", "conversation_hash")


class Chat(Importer):
    """Conversations in any of several shapes, an object each."""

    summary = "conversations with answers: ShareGPT, OpenAI messages, Alpaca, or `prompt` and `completion`"
    example = "chats.json --tokenizer MODEL --out trace.parquet"
    unsaid = (
        "lengths in tokens. With `--tokenizer` they are counted, the chat template and the end-of-sequence token "
        "included, and what each answer had said after so many of them (`progress`); without it they are estimated "
        "from words and signs, which a column `tokens_estimated` says, and there is no `progress`. Of an answer, what "
        "was thought and the tools called count as well. Turns without a question before them, empty answers and empty "
        "conversations are left out, counted and said."
    )
    uses = frozenset({"tokenizer", "max_new_tokens"})

    def convert(self, value: Any, place: Place) -> Iterable[dict[str, Any]]:
        """Return the fields of a record for each answer of one conversation."""
        chat = read_conversation(value)
        self.notes.update(chat.passed_over)
        own = next((value[key] for key in _IDS if isinstance(value.get(key), str | int)), None)
        name = place.name if own is None else f"{place.file}/{own}"
        records: list[dict[str, Any]] = []
        for at, turn in enumerate(chat.turns):
            if turn.role != "assistant":
                continue
            before = chat.turns[:at]
            if not turn.text.strip():
                self.notes["empty answers were left out"] += 1
            elif not any(said.role == "user" for said in before):
                self.notes["answers without a question before them were left out"] += 1
            else:
                records.append(self._record(f"{name}/{len(records)}", name, before, turn, place, value))
                if chat.tools:
                    records[-1]["tools"] = chat.tools
        if not any(turn.role == "assistant" for turn in chat.turns):
            self.notes["conversations without an answer were left out"] += 1
        return records

    def _record(
        self, request_id: str, group: str, before: Sequence[Turn], answer: Turn, place: Place, entry: Any
    ) -> dict[str, Any]:
        tokenizer = self.options.tokenizer
        ids = None if tokenizer is None else list(tokenizer.encode(answer.text, add_special_tokens=False))
        asked = canonical(messages=[turn.message for turn in before])
        fields: dict[str, Any] = {
            "request_id": request_id,
            "prompt": asked.text,
            "turns": asked.turns,
            "prompt_tokens": self._prompt_tokens(before),
            **self.options.capped(count_tokens(answer.text, None) if ids is None else len(ids)),
            "source": self.options.source or place.file,
            "group": group,
        }
        if fields["finish_reason"] == "stop":
            fields["output_tokens"] += 1  # the end-of-sequence token was produced, too
        model = next((entry[key] for key in ("model", "generator") if isinstance(entry.get(key), str)), None)
        if model and self.options.model is None:
            fields["model"] = model
        if ids is None:
            fields["tokens_estimated"] = True
        else:
            fields.update(self.answers.fields_of_ids(ids, fields["output_tokens"]))
        return self.options.complete(fields)

    def _prompt_tokens(self, before: Sequence[Turn]) -> int:
        """Return the tokens of what a server is sent: inside the model's chat template where it has one."""
        tokenizer = self.options.tokenizer
        if tokenizer is not None:
            ids = templated_ids(tokenizer, [turn.message for turn in before])
            if ids is not None:
                return len(ids)
            self.notes["prompts were counted without a chat template, which the tokenizer has not or refuses"] += 1
        return sum(count_tokens(turn.text, tokenizer) for turn in before)

    def remarks(self) -> list[str]:
        """Return what was passed over, and whether lengths are estimates."""
        if self.options.tokenizer is not None:
            return super().remarks()
        return [*super().remarks(), "lengths are estimated from words: give --tokenizer for exact ones"]
