"""One conversation in any of the shapes that public files have: OpenAI messages, ShareGPT, Alpaca or a plain pair."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

#: What files call who speaks. Whoever is not named here is nobody we know: what they said is passed over and counted.
_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "model": "assistant",
    "function_call": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
    "function_response": "tool",
    "observation": "tool",
}
#: Fields of a message that hold what a model thought before it answered.
_REASONING = ("reasoning_content", "reasoning", "thinking")
_PAIRS = (("prompt", "completion"), ("prompt", "response"), ("instruction", "output"), ("question", "answer"))


@dataclass(frozen=True)
class Turn:
    """What somebody said.

    Attributes
    ----------
    role : str
        ``user``, ``assistant``, ``system`` or ``tool``.
    text : str
        What was said. Of an answer also what was thought before it and the tools that it calls, since a model
        produces all of that.
    calls : tuple of str
        Names of the tools that it calls.
    """

    role: str
    text: str
    calls: tuple[str, ...] = ()

    @property
    def message(self) -> dict[str, str]:
        """The turn as an OpenAI message."""
        return {"role": self.role, "content": self.text}


@dataclass
class Conversation:
    """Turns in order, how many tools they may use, and what was passed over.

    Attributes
    ----------
    turns : list of Turn
    tools : int
        Tools that were offered; where the file lists none, those that are called anywhere in the conversation.
    passed_over : Counter of str
        What could not be used, in words, and how often.
    """

    turns: list[Turn]
    tools: int = 0
    passed_over: Counter[str] = field(default_factory=Counter)


def conversation(entry: Any) -> list[dict[str, str]]:
    """Return an entry of any of the shapes as messages with plain text; see `read_conversation`."""
    return [turn.message for turn in read_conversation(entry).turns]


def read_conversation(entry: Any) -> Conversation:
    """Read an entry of any of the shapes.

    Raises
    ------
    ValueError
        The entry has none of the shapes, or a content that is neither text nor a list of parts. The message starts
        with the name of the field.
    """
    if not isinstance(entry, Mapping):
        raise ValueError(f"expected an object with a conversation, got {type(entry).__name__}")
    passed_over: Counter[str] = Counter()
    for name in ("conversations", "messages", "conversation"):
        if isinstance(entry.get(name), list):
            said = [_turn(f"{name}[{at}]", one, passed_over) for at, one in enumerate(entry[name])]
            turns = [turn for turn in said if turn is not None]
            break
    else:
        turns = _pair(entry)
    system = entry.get("system")
    if isinstance(system, str) and system and all(turn.role != "system" for turn in turns):
        turns.insert(0, Turn("system", system))
    return Conversation(turns, _tools(entry, turns), passed_over)


def _turn(place: str, message: Any, passed_over: Counter[str]) -> Turn | None:
    if not isinstance(message, Mapping):
        raise ValueError(f"{place}: expected an object with a role and what was said, got {_kind(message)}")
    sender = message.get("role", message.get("from"))
    if not isinstance(sender, str):
        raise ValueError(f"{place}: expected `role` and `content`, or `from` and `value`, got {_keys(message)}")
    field_name = "content" if "content" in message else "value" if "value" in message else None
    if field_name is None and not any(message.get(name) for name in (*_REASONING, "tool_calls", "function_call")):
        raise ValueError(f"{place}: expected what was said in `content` or `value`, got {_keys(message)}")
    role = _ROLES.get(sender.lower())
    said = _text(f"{place}.{field_name}", message[field_name], passed_over) if field_name else ""
    if role is None:
        passed_over[f"turns of the unknown role {sender[:40]!r} were passed over"] += 1
        return None
    if role != "assistant":
        return Turn(role, said)
    thought = [_text(f"{place}.{name}", message[name], passed_over) for name in _REASONING if message.get(name)]
    calls = _calls(place, message)
    parts = [*thought[:1], said, *(text for _, text in calls)]
    return Turn(role, "\n".join(part for part in parts if part), tuple(name for name, _ in calls))


def _text(place: str, content: Any, passed_over: Counter[str]) -> str:
    """Return the text of a content: itself, or its text parts joined by line ends."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ValueError(f"{place}: expected text or a list of parts, got {_kind(content)}")
    texts = []
    for at, part in enumerate(content):
        text = part if isinstance(part, str) else _of_part(part) if isinstance(part, Mapping) else None
        if isinstance(text, str):
            texts.append(text)
        elif isinstance(part, Mapping) and isinstance(part.get("type"), str) and text is None:
            passed_over[f"parts of type {part['type'][:40]!r}, which hold no text, were passed over"] += 1
        else:
            raise ValueError(f"{place}[{at}]: expected text or a part with `type` and `text`, got {_kind(part)}")
    return "\n".join(texts)


def _of_part(part: Mapping[str, Any]) -> Any:
    """Return the text of a part: what it says, thinks or refuses with, or the tool call that it is (Anthropic's)."""
    if part.get("type") == "tool_use" and isinstance(part.get("name"), str):
        return f"{part['name']} {msgspec.json.encode(part.get('input')).decode()}"
    return next((part[name] for name in ("text", "thinking", "refusal") if isinstance(part.get(name), str)), None)


def _calls(place: str, message: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return name and text of every tool call of an answer: a model writes both."""
    calls = message.get("tool_calls")
    if calls is None and message.get("function_call") is not None:
        calls = [message["function_call"]]
    if calls is None:
        return []
    if not isinstance(calls, list):
        raise ValueError(f"{place}.tool_calls: expected a list, got {_kind(calls)}")
    found = []
    for at, call in enumerate(calls):
        function = call.get("function", call) if isinstance(call, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(name, str):
            raise ValueError(f"{place}.tool_calls[{at}]: expected a function with a name, got {_kind(call)}")
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
        found.append((name, f"{name} {text}"))
    return found


def _pair(entry: Mapping[str, Any]) -> list[Turn]:
    for asked_name, answer_name in _PAIRS:
        asked = entry.get(asked_name)
        if isinstance(asked, str):
            if asked_name == "prompt" and answer_name not in entry and "response" in entry:
                continue
            more = entry.get("input") if asked_name == "instruction" else None
            asked = "\n\n".join(part for part in (asked, more) if isinstance(part, str) and part)
            answer = entry.get(answer_name)
            if answer is None:
                return [Turn("user", asked)]
            if not isinstance(answer, str):
                raise ValueError(f"{answer_name}: expected text, got {_kind(answer)}")
            return [Turn("user", asked), Turn("assistant", answer)]
    raise ValueError(
        "expected an object with `conversations` (ShareGPT), `messages` (OpenAI), `instruction` and `output` (Alpaca) "
        "or `prompt` and `completion`"
    )


def _tools(entry: Mapping[str, Any], turns: Sequence[Turn]) -> int:
    for name in ("tools", "functions"):
        offered = entry.get(name)
        if isinstance(offered, str):  # some files keep the list as JSON text
            try:
                offered = msgspec.json.decode(offered)
            except (msgspec.MsgspecError, RecursionError):
                continue
        if isinstance(offered, list):
            return len(offered)
    return len(set(_all_calls(turns)))


def _all_calls(turns: Iterable[Turn]) -> Iterable[str]:
    return (name for turn in turns for name in turn.calls)


def _keys(message: Mapping[str, Any]) -> str:
    return ", ".join(sorted(map(str, message))[:5])[:80] or "nothing"


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "text", bool: "a boolean", int: "a number", float: "a number"}
    return kinds.get(type(value), "null" if value is None else type(value).__name__)
