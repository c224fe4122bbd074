"""Requests from what callers have: scikit-learn tools hand over lists, people plain text."""

from __future__ import annotations

from collections.abc import Sequence

from laps_sd.data import PromptRequest


def as_requests(X: Sequence[PromptRequest | str]) -> list[PromptRequest]:
    """Return prompts as ``PromptRequest``; plain text is a prompt about which nothing else is known."""
    return [PromptRequest(prompt=x) if isinstance(x, str) else x for x in X]
