"""Which finished requests belong to one run, and the tokens of their verify steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from laps_sd.data import RequestRecord


class RunKey(NamedTuple):
    """A target model with a draft and a draft length; acceptance is comparable inside one run only."""

    model: str | None
    draft: str | None
    drafts: int | None


def run_keys(records: Sequence[RequestRecord]) -> list[RunKey]:
    """Return each record's run.

    A draft length is taken at its word only where some request of the model and draft stays below its own. Where
    every request reaches it, it was read off what each happened to accept, and would tell the outcome: the run then
    has one draft length, the largest.
    """
    pairs: dict[tuple[str | None, str | None], list[RequestRecord]] = {}
    for record in records:
        pairs.setdefault((record.model, record.draft), []).append(record)
    largest = {pair: _shared_length(rows) for pair, rows in pairs.items()}
    keys = []
    for record in records:
        shared = largest[record.model, record.draft]
        keys.append(RunKey(record.model, record.draft, record.max_correct_drafts if shared is None else shared))
    return keys


def _shared_length(records: Sequence[RequestRecord]) -> int | None:
    """Return the largest draft length when the records' own were read off the outcome; None when they are real."""
    lengths = [r.max_correct_drafts for r in records if r.max_correct_drafts is not None]
    if len(set(lengths)) < 2:
        return None
    below = any(
        r.correct_drafts_histogram is not None
        and r.max_correct_drafts is not None
        and not any(r.correct_drafts_histogram[r.max_correct_drafts :])
        for r in records
    )
    return None if below else max(lengths)


def step_tokens(record: RequestRecord, random: np.random.Generator | None = None) -> NDArray[Any]:
    """Return tokens of each verify step, bonus included, in order.

    Where only their histogram is known the result is empty, or in random order when ``random`` is given.
    """
    if record.accept_lengths is not None:
        return np.array(record.accept_lengths, dtype=np.float64)
    histogram = record.correct_drafts_histogram
    if random is None or not histogram:
        return np.empty(0)
    return random.permutation(np.repeat(np.arange(1.0, len(histogram) + 1.0), histogram))


def has_acceptance(record: RequestRecord) -> bool:
    """Return whether a record says how many tokens its verify steps gave."""
    return record.accept_length is not None


def verify_steps_of(record: RequestRecord) -> int:
    """Return how many verify steps a record's acceptance was seen over, in order or not; 0 where it does not say."""
    if record.accept_lengths is not None:
        return len(record.accept_lengths)
    return sum(record.correct_drafts_histogram or ()) or record.verify_steps or 0
