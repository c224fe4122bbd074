"""One conversation in any of the shapes that public files have: ShareGPT, OpenAI messages or Alpaca."""

from collections.abc import Mapping
from typing import Any

from laps_sd.data.canonical import message_text

_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant", "assistant": "assistant"}


def conversation(entry: Any) -> list[dict[str, str]]:
    """Return an entry of any of the three shapes as messages with plain text.

    Raises
    ------
    ValueError
        The entry has none of the shapes.
    """
    if isinstance(entry, Mapping):
        if isinstance(entry.get("conversations"), list):
            return [_sharegpt(turn) for turn in entry["conversations"]]
        if isinstance(entry.get("messages"), list):
            return [_openai(message) for message in entry["messages"]]
        if isinstance(entry.get("instruction"), str):
            asked = "\n\n".join(part for part in (entry["instruction"], entry.get("input")) if part)
            answer = entry.get("output")
            return [{"role": "user", "content": asked}] + (
                [{"role": "assistant", "content": answer}] if isinstance(answer, str) else []
            )
    raise ValueError(
        "expected an object with `conversations` (ShareGPT), `messages` (OpenAI) or `instruction` and `output` (Alpaca)"
    )


def _sharegpt(turn: Any) -> dict[str, str]:
    if not isinstance(turn, Mapping) or not isinstance(turn.get("value"), str):
        raise ValueError("conversations: expected turns with `from` and `value`")
    sender = str(turn.get("from"))
    return {"role": _ROLES.get(sender, sender), "content": turn["value"]}


def _openai(message: Any) -> dict[str, str]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise ValueError("messages: expected messages with `role` and `content`")
    return {"role": message["role"], "content": message_text(message)}
