"""What a prompt of a file asks of the form of its answer, and how each endpoint of SGLang is told."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from laps_sd.data.meta_info import CONSTRAINTS, JSON_CONSTRAINTS, LONGEST_CONSTRAINT, constraint_of

#: What chat templates call the switch of thinking: Qwen's and GLM's name, DeepSeek's and Kimi's.
_SWITCHES = ("enable_thinking", "thinking")
#: Keywords of a template that are no choice of a prompt's.
_OURS = frozenset({"conversation", "tokenize", "add_generation_prompt", "tools"})


@dataclass(frozen=True, slots=True)
class Form:
    """What else is asked, beside the prompt.

    Attributes
    ----------
    constraint : mapping
        At most one of SGLang's sampling parameters ``regex``, ``json_schema``, ``ebnf`` and ``structural_tag``.
    tools : list of mapping
        Tools that the answer may call, in OpenAI's shape.
    tool_choice : str or mapping, optional
        OpenAI's: ``auto``, ``none``, ``required`` or the tool that must be called.
    template : mapping
        Keywords of the chat template, the switch of thinking among them.
    """

    constraint: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: Any = None
    template: Mapping[str, Any] = field(default_factory=dict)

    @property
    def thinking(self) -> bool | None:
        """Whether thinking is switched on or off; None where nothing is said."""
        found = (self.template.get(name) for name in _SWITCHES)
        return next((value for value in found if isinstance(value, bool)), None)

    def of_generate(self) -> dict[str, Any]:
        """Return the sampling parameters of ``/generate``, which takes a schema as text."""
        return {
            kind: value if isinstance(value, str) else msgspec.json.encode(value).decode()
            for kind, value in self.constraint.items()
        }

    def of_chat(self) -> dict[str, Any]:
        """Return fields of a chat completion's body."""
        body: dict[str, Any] = {}
        for kind, value in self.constraint.items():
            if kind not in JSON_CONSTRAINTS:
                body[kind] = value
                continue
            read = msgspec.json.decode(value) if isinstance(value, str) else value
            if kind == "json_schema":
                body["response_format"] = {"type": kind, "json_schema": {"name": "answer", "schema": read}}
            else:
                body["response_format"] = {**read, "type": kind}
        if self.tools:
            body["tools"] = list(self.tools)
            if self.tool_choice is not None:
                body["tool_choice"] = self.tool_choice
        if self.template:
            body["chat_template_kwargs"] = dict(self.template)
        return body

    def chat_fields(self) -> dict[str, Any]:
        """Return the record's fields of a request to the chat endpoint, whose rendered prompt nobody here sees."""
        tools = 0 if self.tool_choice == "none" else len(self.tools)
        constraint = constraint_of(self.constraint)
        if tools and constraint is None and self.tool_choice not in (None, "auto"):
            # The server makes a constraint of it; in which words depends on its tool parser.
            constraint = "json_schema:"
        if isinstance(self.tool_choice, Mapping):
            tools = min(tools, 1)  # SGLang renders the one that must be called
        return {"constraint": constraint, "tools": tools or None, "thinking": self.thinking}


def read_form(row: Mapping[str, Any]) -> Form:
    """Read what a row of a prompt file says of the form of its answer.

    Taken where present: ``regex``, ``json_schema``, ``ebnf``, ``structural_tag`` (as text or JSON), OpenAI's
    ``response_format``, ``tools``, ``tool_choice`` and ``chat_template_kwargs``, and what a record has:
    ``constraint`` (unless it was cut) and ``thinking``.

    Raises
    ------
    ValueError
        One of these is of another shape, or there are two constraints. The message starts with its name.
    """
    constraint = _constraint(row)
    tools = row.get("tools")
    if isinstance(tools, str):
        tools = _json("tools", tools)
    if tools is None or isinstance(tools, int):  # a record's: how many there were
        tools = []
    if not isinstance(tools, list) or not all(isinstance(tool, Mapping) for tool in tools):
        raise ValueError(f"tools: expected a list of objects, got {_kind(row['tools'])}")
    choice = row.get("tool_choice")
    if choice is not None and not isinstance(choice, str | Mapping):
        raise ValueError(f"tool_choice: expected a word or an object, got {_kind(choice)}")
    template = row.get("chat_template_kwargs")
    if template is not None and not isinstance(template, Mapping):
        raise ValueError(f"chat_template_kwargs: expected an object, got {_kind(template)}")
    template = dict(template or {})
    if ours := _OURS.intersection(template):
        raise ValueError(f"chat_template_kwargs: expected no {sorted(ours)[0]}, which is told otherwise")
    if isinstance(row.get("thinking"), bool):
        template.setdefault(_SWITCHES[0], row["thinking"])
    return Form(constraint, tuple(tools), choice, template)


def _constraint(row: Mapping[str, Any]) -> dict[str, Any]:
    found = {kind: row[kind] for kind in CONSTRAINTS if row.get(kind)}
    asked = row.get("response_format")
    if isinstance(asked, Mapping) and asked.get("type") in ("json_schema", "structural_tag"):
        inner = asked.get("json_schema")
        schema = inner.get("schema") if isinstance(inner, Mapping) else None
        if asked["type"] == "structural_tag":
            found["structural_tag"] = dict(asked)
        elif isinstance(schema, Mapping):
            found["json_schema"] = schema
        else:
            raise ValueError("response_format: expected json_schema with a schema in it")
    elif isinstance(asked, Mapping) and asked.get("type") == "json_object":
        found["json_schema"] = {"type": "object"}  # what SGLang makes of it
    elif asked is not None and not (isinstance(asked, Mapping) and asked.get("type") == "text"):
        raise ValueError(f"response_format: expected an object with a type that SGLang knows, got {_kind(asked)}")
    kept = row.get("constraint")
    if isinstance(kept, str) and len(kept) < LONGEST_CONSTRAINT and not found:
        kind, _, text = kept.partition(":")
        if kind in CONSTRAINTS and text:
            found[kind] = text
    if len(found) > 1:
        raise ValueError(f"{', '.join(found)}: expected one of them, an answer is held to one form")
    return {kind: _checked(kind, value) for kind, value in found.items()}


def _checked(kind: str, value: Any) -> Any:
    if kind not in JSON_CONSTRAINTS:
        if not isinstance(value, str):
            raise ValueError(f"{kind}: expected text, got {_kind(value)}")
        return value
    read = _json(kind, value) if isinstance(value, str) else value
    if not isinstance(read, Mapping):
        raise ValueError(f"{kind}: expected a JSON object, got {_kind(read)}")
    return read


def _json(name: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(f"{name}: expected JSON ({error})") from None


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "text", bool: "a boolean", int: "a number", float: "a number"}
    return kinds.get(type(value), type(value).__name__)
