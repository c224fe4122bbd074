"""The fields of a record that say what its answer said, from its token ids or from its text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast

from laps_sd.data.progress.classes import TokenClasses, Vocabulary
from laps_sd.data.progress.counting import progress_of

_NEEDED = ("__len__", "encode", "decode")


class AnswerCounter:
    """Counts answers with the token classes of one tokenizer, whose table is made when the first answer comes.

    Parameters
    ----------
    tokenizer : object or None
        A Hugging Face tokenizer of the model that answered. Without one, and with one that cannot say how many tokens
        it has, nothing is counted: a text alone does not tell how far it was after 64 tokens.
    """

    def __init__(self, tokenizer: object | None) -> None:
        usable = tokenizer is not None and all(hasattr(tokenizer, name) for name in _NEEDED)
        self._tokenizer = cast(Vocabulary, tokenizer) if usable else None

    @cached_property
    def classes(self) -> TokenClasses | None:
        """The table; None without a tokenizer that serves."""
        return None if self._tokenizer is None else TokenClasses.of(self._tokenizer)

    def fields_of_ids(self, ids: Sequence[int], output_tokens: int) -> dict[str, Any]:
        """Return ``progress`` and ``progress_table`` of an answer of ``output_tokens`` tokens; empty when not counted.

        Parameters
        ----------
        ids : sequence of int
            The answer; the end token may be missing.
        output_tokens : int
            Its length as the record says it.
        """
        if self.classes is None:
            return {}
        counts, table = progress_of(ids, self.classes, output_tokens)
        return {"progress": counts, "progress_table": table}

    def fields_of_text(self, text: str, output_tokens: int) -> dict[str, Any]:
        """Return the same of an answer of which there is only text: it is made into tokens again."""
        if self._tokenizer is None:
            return {}
        return self.fields_of_ids(self._tokenizer.encode(text, add_special_tokens=False), output_tokens)
