"""A prompt to be sent to a server."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from laps_sd.data.canonical import CanonicalPrompt, canonical
from laps_sd.data.collection.form import Form


@dataclass(frozen=True, slots=True)
class Prompt:
    """What to ask, and what to write beside the answer's record.

    Attributes
    ----------
    prompt_id
        Becomes the ``request_id`` of the record; unique among the prompts of a run.
    prompt
        Text of a single user turn; ignored when ``messages`` are given.
    messages
        A whole conversation in OpenAI's shape.
    max_new_tokens, temperature
        Override those of the run.
    form
        What else is asked: a grammar or schema, tools, thinking on or off.
    """

    prompt_id: str
    prompt: str
    category: str | None = None
    group: str | None = None
    source: str | None = None
    messages: tuple[Mapping[str, Any], ...] | None = None
    max_new_tokens: int | None = None
    temperature: float | None = None
    form: Form = field(default_factory=Form)

    @property
    def conversation(self) -> list[dict[str, Any]]:
        """The prompt as OpenAI messages."""
        if self.messages is not None:
            return [dict(message) for message in self.messages]
        return [{"role": "user", "content": self.prompt}]

    @property
    def canonical(self) -> CanonicalPrompt:
        """The text that features are computed from, and the earlier user turns."""
        return canonical(messages=self.messages) if self.messages is not None else canonical(text=self.prompt)
