"""What a request says about the form of its answer: a grammar or schema, tools, thinking switched on or off."""

from __future__ import annotations

from collections.abc import Sequence
from math import log1p

from laps_sd.data import PromptRequest
from laps_sd.data.meta_info import JSON_CONSTRAINTS

FORM_NAMES: tuple[str, ...] = (
    "constraint_json",
    "constraint_pattern",
    "log_constraint",
    "log_fields",
    "log_lists",
    "log_choices",
    "log_tools",
    "must_call",
    "thinking_on",
    "thinking_off",
)
#: Those of which each may change the accept length whatever the prompt says.
FORM_EFFECTS = ("constraint_json", "constraint_pattern", "log_tools", "thinking_on", "thinking_off")

#: What tells, in the text of a schema and in that of a pattern, how many fields, repetitions and choices there are.
_IN_JSON = (('"type"',), ('"array"',), ('"enum"', '"const"', '"anyOf"', '"oneOf"'))
_IN_PATTERN = ((), ("*", "+", "{"), ("|",))


def shows_form(request: PromptRequest) -> bool:
    """Whether anything of this is known of a request."""
    return request.constraint is not None or bool(request.tools) or request.thinking is not None


def form_row(request: PromptRequest) -> list[float]:
    """Return the features named in ``FORM_NAMES``.

    A constraint beside tools is mostly what a server makes of ``tool_choice``, in words that depend on its tool parser:
    that there is one is all that is read of it.
    """
    kind, _, text = (request.constraint or "").partition(":")
    tools, as_json = request.tools or 0, kind in JSON_CONSTRAINTS
    size = log1p(len(text)) if not tools else 0.0
    signs = ((), (), ()) if not text or tools else _IN_JSON if as_json else _IN_PATTERN
    return [
        float(as_json),
        float(bool(kind) and not as_json),
        size,
        *(log1p(_count(text, found)) for found in signs),
        log1p(tools),
        float(bool(kind) and tools > 0),
        float(request.thinking is True),
        float(request.thinking is False),
    ]


def _count(text: str, signs: Sequence[str]) -> int:
    return sum(text.count(sign) for sign in signs)
