"""What a prompt shows besides what was asked, once a chat template has rendered it: tools, and whether to think.

A server renders tools and the switch of thinking into the text before anyone sees the request, so text is all there is
to read them from: in SGLang's tokenizer process, in its metrics files, and in what ``collect`` renders itself.
"""

import re
from typing import NamedTuple

#: Templates put tools before the conversation or into its first turn: what comes later is not searched.
_SEARCHED = 200_000
#: One of these stands before each tool: OpenAI's own JSON, with and without blanks; the XML of Qwen's coders.
_OPENINGS = ('"type": "function"', '"type":"function"', "\n<function>\n<name>")
#: gpt-oss (Harmony) declares tools as types of a namespace.
_NAMESPACE, _TYPE = "namespace functions {", "\ntype "
_LAST_TAG = re.compile(r"<(/?)(?:\w{1,20}:)?think(?:ing)?>\Z")


class Shown(NamedTuple):
    """What a rendered prompt shows.

    Attributes
    ----------
    tools : int or None
        Tools that the answer may call; None where none can be seen.
    thinking : bool or None
        Whether the answer begins inside of its thoughts or behind them; None where the template leaves it open.
    """

    tools: int | None = None
    thinking: bool | None = None


def shown_in(text: str) -> Shown:
    r"""Return what a rendered prompt shows.

    Examples
    --------
    >>> shown_in("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n").thinking
    False
    """
    start = text[:_SEARCHED]
    tools = sum(start.count(opening) for opening in _OPENINGS)
    if not tools and (place := start.find(_NAMESPACE)) >= 0:
        tools = start.count(_TYPE, place)
    tag = _LAST_TAG.search(text[-64:].rstrip())
    return Shown(tools or None, None if tag is None else not tag[1])


def thinking_of(shown: Shown, requires_reasoning: bool) -> bool | None:
    """Return whether thinking is on: as the prompt shows it, else as SGLang's chat endpoint found it (if it did).

    SGLang says that an answer reasons; that it does not it says as well of every request of a server without
    ``--reasoning-parser``, so that stands for "not known".
    """
    return shown.thinking if shown.thinking is not None else True if requires_reasoning else None
