"""What may be known about a request when it arrives: the input of every predictor."""

from dataclasses import dataclass

from laps_sd.data.records.schema import RequestRecord


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """A request at arrival: nothing in it tells how the answer came out.

    Attributes
    ----------
    prompt
        Text from :func:`laps_sd.data.canonical_prompt`.
    prompt_tokens
        Tokens after the chat template.
    max_new_tokens
        The cap asked for, tokens.
    turns
        Earlier user turns of the conversation.
    constraint
        What the answer is held to, as `laps_sd.data.meta_info.constraint_of` says it.
    tools
        How many tools the answer may call.
    thinking
        Whether thinking is switched on or off; None: not said.
    ignore_eos
        The end token is ignored, so that the length is the one asked for.
    """

    prompt: str
    prompt_tokens: int | None = None
    max_new_tokens: int | None = None
    temperature: float | None = None
    model: str | None = None
    turns: int = 0
    constraint: str | None = None
    tools: int | None = None
    thinking: bool | None = None
    ignore_eos: bool = False

    @classmethod
    def from_record(cls, record: RequestRecord) -> "PromptRequest":
        """Return what was known when the request of ``record`` arrived; a prompt that was not kept is empty."""
        return cls(
            prompt=record.prompt or "",
            prompt_tokens=record.prompt_tokens,
            max_new_tokens=record.max_new_tokens,
            temperature=record.temperature,
            model=record.model,
            turns=record.turns or 0,
            constraint=record.constraint,
            tools=record.tools,
            thinking=record.thinking,
            ignore_eos=bool(record.ignore_eos),
        )
