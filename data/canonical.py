"""One text for the features, whichever endpoint or file a request came from.

``/generate`` brings text (raw, or templated by the client), ``/v1/chat/completions`` brings messages, SGLang's
exported metrics hold templated token ids only. All three must give a predictor the same text, or it is trained on
one thing and served another. The canonical prompt is the last thing the user said, without any template: default
system prompts differ from server to server and say nothing about the length of the answer; earlier turns are counted.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from laps_sd.data.normal import normal_form
from laps_sd.data.rendered import Shown, shown_in
from laps_sd.data.tokenizer import Tokenizer


class CanonicalPrompt(NamedTuple):
    """The canonical prompt, and how many user turns came before it."""

    text: str
    turns: int


class _Markup(NamedTuple):
    """How a family of chat templates writes a user turn: the text starts with ``start``, each turn matches ``turn``.

    Any client can send any text, and it is searched in the server's event loop: in ``start`` nothing may repeat
    before something that repeats as well, and ``turn`` may not fail once its opening is found.
    """

    start: re.Pattern[str]
    turn: re.Pattern[str]


def _markup(start: str, turn: str) -> _Markup:
    return _Markup(re.compile(start), re.compile(turn, re.DOTALL))


_MARKUPS = (
    # ChatML: SmolLM2, Qwen, Hermes, Yi
    _markup(r"<\|im_start\|>\w+\n", r"<\|im_start\|>user\n(.*?)(?:<\|im_end\|>|\Z)"),
    # Llama 3
    _markup(
        r"(?:<\|begin_of_text\|>)*<\|start_header_id\|>\w+",
        r"<\|start_header_id\|>user<\|end_header_id\|>\s*(.*?)(?:<\|eot_id\|>|\Z)",
    ),
    # Llama 4
    _markup(
        r"(?:<\|begin_of_text\|>)*<\|header_start\|>\w+",
        r"<\|header_start\|>user<\|header_end\|>\s*(.*?)(?:<\|eot\|>|\Z)",
    ),
    # Gemma
    _markup(r"(?:<bos>)*<start_of_turn>\w+\n", r"<start_of_turn>user\n(.*?)(?:<end_of_turn>|\Z)"),
    # gpt-oss (Harmony)
    _markup(r"<\|start\|>\w+", r"<\|start\|>user<\|message\|>(.*?)(?:<\|end\|>|\Z)"),
    # DeepSeek
    _markup(
        r"(?:<[｜|]begin▁of▁sentence[｜|]>)?.*?<[｜|]User[｜|]>",
        r"<[｜|]User[｜|]>(.*?)(?:<[｜|]Assistant[｜|]>|\Z)",
    ),
    # Phi 3, Zephyr
    _markup(r"<\|(?:system|user)\|>\n", r"<\|user\|>\n(.*?)(?:<\|end\|>|</s>|<\|assistant\|>|\Z)"),
    # Llama 2, Mistral; a system prompt sits inside the first user turn
    _markup(r"(?:<s>\s*)?\[INST\]", r"\[INST\]\s*(.*?)(?:\[/INST\]|\Z)"),
    # Vicuna
    _markup(r"A chat between .*?USER: ", r"USER: (.*?)(?: ?ASSISTANT:|\Z)"),
)

_EXACTLY_ONE = "exactly one of text, messages and token_ids is expected"
_SYSTEM = ("<<SYS>>", "<</SYS>>")
_SENTINEL = "\ue000laps-sd\ue000"
#: Of longer prompts only this many token ids are decoded at each end: enough for what `normal_form` keeps, and for a
#: template and system prompt around it.
WINDOW_IDS = 20_000


def canonical_prompt(
    *,
    text: str | None = None,
    messages: Sequence[Mapping[str, Any]] | None = None,
    token_ids: Sequence[int] | None = None,
    tokenizer: Tokenizer | None = None,
) -> str:
    r"""Return the text that features are computed from. See :func:`canonical` for the arguments.

    Examples
    --------
    >>> canonical_prompt(text="Hello")
    'Hello'
    >>> canonical_prompt(messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}])
    'Hello'
    >>> canonical_prompt(text="<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n")
    'Hello'
    """
    return canonical(text=text, messages=messages, token_ids=token_ids, tokenizer=tokenizer).text


def canonical(
    *,
    text: str | None = None,
    messages: Sequence[Mapping[str, Any]] | None = None,
    token_ids: Sequence[int] | None = None,
    tokenizer: Tokenizer | None = None,
) -> CanonicalPrompt:
    """Return the canonical prompt and the number of earlier user turns.

    Parameters
    ----------
    text
        Raw or templated text.
    messages
        OpenAI messages; content is text or a list of parts, of which the text parts count.
    token_ids
        Token ids as a server got them; needs ``tokenizer``.
    tokenizer
        Decodes ``token_ids``; its chat template also unwraps a template that is not among the known ones.

    Notes
    -----
    Of more than ``2 * WINDOW_IDS`` ids the middle is not decoded. Where it holds whole turns they are not counted.

    Raises
    ------
    ValueError
        Not exactly one of ``text``, ``messages`` and ``token_ids`` is given, or ids come without a tokenizer.
    """
    if messages is None:
        return read_rendered(text=text, token_ids=token_ids, tokenizer=tokenizer)[0]
    if text is not None or token_ids is not None:
        raise ValueError(_EXACTLY_ONE)
    return _last(message_text(m) for m in messages if m.get("role") == "user")


def read_rendered(
    *, text: str | None = None, token_ids: Sequence[int] | None = None, tokenizer: Tokenizer | None = None
) -> tuple[CanonicalPrompt, Shown]:
    """Return the canonical prompt of a text or of token ids, and what else they show; see `canonical`."""
    if (text is None) == (token_ids is None):
        raise ValueError(_EXACTLY_ONE)
    if token_ids is not None:
        if tokenizer is None:
            raise ValueError("token ids need a tokenizer to become text")
        text = _decoded(token_ids, tokenizer)
    text = text or ""
    return _unwrap(text, tokenizer), shown_in(text)


def message_text(message: Mapping[str, Any]) -> str:
    """Return the text of an OpenAI message: its content, or the text parts of its content joined by line ends."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part["text"]) for part in parts if isinstance(part, Mapping) and "text" in part)


def _decoded(token_ids: Sequence[int], tokenizer: Tokenizer) -> str:
    parts = [token_ids]
    if len(token_ids) > 2 * WINDOW_IDS:
        parts = [token_ids[:WINDOW_IDS], token_ids[-WINDOW_IDS:]]
    return "\n".join(str(tokenizer.decode(list(part), skip_special_tokens=False)) for part in parts)


def _last(user_texts: Iterable[str]) -> CanonicalPrompt:
    said = list(user_texts)
    return CanonicalPrompt(normal_form(said[-1]) if said else "", max(0, len(said) - 1))


def _unwrap(text: str, tokenizer: Tokenizer | None) -> CanonicalPrompt:
    templated = text.lstrip()
    for markup in _MARKUPS:
        if markup.start.match(templated):
            turns = markup.turn.findall(templated)
            if turns:
                return _last([*turns[:-1], _without_system(turns[-1])])
    inner = _unwrap_with(tokenizer, text) if tokenizer is not None else None
    return _last([text if inner is None else inner])


def _without_system(turn: str) -> str:
    """Return a user turn without the system prompt that Llama 2 puts before it."""
    opening, closing = _SYSTEM
    end = turn.find(closing) if turn.startswith(opening) else -1
    return turn if end < 0 else turn[end + len(closing) :]


def _unwrap_with(tokenizer: Tokenizer, text: str) -> str | None:
    """Return what the tokenizer's own chat template wraps around one user turn, or None when it is not there."""
    wrap = _wrap_of(tokenizer)
    if wrap is None:
        return None
    before, after = wrap
    body = text.strip()
    if body.startswith(before) and body.endswith(after) and len(body) >= len(before) + len(after):
        return body[len(before) : len(body) - len(after)]
    return None


class _Wrap(NamedTuple):
    """What a template puts around a user turn, as rendered for one day: some tell the model the date."""

    template: Any
    day: date
    around: tuple[str, str] | None


_WRAPS: WeakKeyDictionary[Tokenizer, _Wrap] = WeakKeyDictionary()


def _wrap_of(tokenizer: Tokenizer) -> tuple[str, str] | None:
    """Before and after a user turn; rendered once a day and template, because that takes milliseconds."""
    template, day = getattr(tokenizer, "chat_template", None), date.today()
    known = _WRAPS.get(tokenizer)
    if known is None or known.day != day or known.template is not template:
        known = _WRAPS[tokenizer] = _Wrap(template, day, _rendered(tokenizer))
    return known.around


def _rendered(tokenizer: Tokenizer) -> tuple[str, str] | None:
    try:
        rendered = str(
            tokenizer.apply_chat_template(
                [{"role": "user", "content": _SENTINEL}], tokenize=False, add_generation_prompt=True
            )
        )
    except (ValueError, TypeError):  # no chat template, or one that wants more than a user turn
        return None
    before, found, after = rendered.strip().partition(_SENTINEL)
    # The turn's own text is stripped as well, so blanks next to it are not told apart.
    before, after = before.strip(), after.strip()
    return (before, after) if found and (before or after) else None
