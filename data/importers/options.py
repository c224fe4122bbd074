"""What an importer cannot find in the file and its user may know."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laps_sd.data.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Facts that complete what a file says; a value that the file has wins.

    Attributes
    ----------
    tokenizer
        Turns token ids into text (``sglang-metrics``) and counts tokens of text (``chat``, ``spec-bench``).
    questions
        Question file of a ``spec-bench`` run: adds the prompts.
    model, draft, source
        Written where the file names none.
    max_new_tokens
        The cap of the run, tokens: an answer that reached it is censored.
    natural_ends
        ``sglang-bench`` only: the run let the model end by itself (``--disable-ignore-eos``).
    time_unit
        ``arrivals`` only: unit of its numbers, ``s``, ``ms``, ``us`` or ``ns``, where the format leaves it open.
    """

    tokenizer: Tokenizer | None = None
    questions: Path | None = None
    model: str | None = None
    draft: str | None = None
    source: str | None = None
    max_new_tokens: int | None = None
    natural_ends: bool = False
    time_unit: str | None = None

    def complete(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Fill gaps of a record's fields with these facts."""
        known = {"model": self.model, "draft": self.draft, "source": self.source}
        gaps = {name: value for name, value in known.items() if value is not None and fields.get(name) is None}
        return {**fields, **gaps}

    def capped(self, output_tokens: Any, finish_reason: str = "stop") -> dict[str, Any]:
        """Return length, end and cap of an answer; some engines overshoot their cap by a token or two."""
        cap = self.max_new_tokens
        if cap is None or not isinstance(output_tokens, int):
            return {"output_tokens": output_tokens, "finish_reason": finish_reason}
        reached = output_tokens >= cap
        return {
            "output_tokens": min(output_tokens, cap),
            "finish_reason": "length" if reached else finish_reason,
            "max_new_tokens": cap,
        }


#: Scripts that put no blanks between words: a sign of them is about a token.
_UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u3040-\u30ff\u31f0-\u31ff"  # Japanese syllables
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Chinese characters
    "\uac00-\ud7af"  # Hangul
)
_PIECES = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+|[^\w\s]")


def count_tokens(text: str, tokenizer: Tokenizer | None) -> int:
    """Return the number of tokens of ``text``; without a tokenizer an estimate from words and signs.

    The estimate counts a piece per six letters of a word (three where the letters are not Latin), one per sign of a
    script without spaces and one per other sign, as subword vocabularies roughly do.

    Examples
    --------
    >>> count_tokens("Name three rivers.", None)
    4
    >>> count_tokens("川は流れる。", None)
    6
    """
    if tokenizer is not None:
        return len(tokenizer.encode(text, add_special_tokens=False))
    return sum(-(-len(piece) // (6 if piece.isascii() else 3)) for piece in _PIECES.findall(text))
