"""The tokenizer of a model: what is needed of one, and how it is loaded."""

from collections.abc import Sequence
from typing import Any, Protocol

from laps_sd.errors import InputError


class Tokenizer(Protocol):
    """The methods of a Hugging Face tokenizer that are needed here."""

    def encode(self, text: str, /, *, add_special_tokens: bool = ...) -> Any:
        """Return the token ids of a text."""

    def decode(self, token_ids: Sequence[int], /, *, skip_special_tokens: bool = ...) -> Any:
        """Return the text of token ids."""

    def apply_chat_template(
        self, conversation: list[dict[str, Any]], /, *, tokenize: bool = ..., add_generation_prompt: bool = ...
    ) -> Any:
        """Return a conversation as the model is given it."""


def templated_ids(tokenizer: Tokenizer, conversation: list[dict[str, Any]]) -> list[int] | None:
    """Return the token ids of a conversation inside the model's chat template, ready for an answer.

    None where the tokenizer has no template, or its template refuses the conversation.
    """
    try:
        text = tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
    except Exception:  # a template is a program of the model's makers: it may raise anything
        return None
    return list(tokenizer.encode(str(text), add_special_tokens=False))


def load_tokenizer(name: str) -> Any:
    """Return the Hugging Face tokenizer of a model folder or hub name.

    Raises
    ------
    InputError
        ``transformers`` is missing, or there is no tokenizer.
    """
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise InputError("a tokenizer needs the transformers package; run `pip install transformers`") from None
    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"{name} holds no tokenizer that can be read ({why}); name a model folder, or a model of the hub"
        ) from None
