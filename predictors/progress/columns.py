"""The numbers that the refinement reads: the counts of an answer, what follows from them, and the arrival curve."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, nan

import numpy as np

from laps_sd.data.progress.counting import COUNTERS, LOOP
from laps_sd.predictors.arrays import Floats
from laps_sd.scheduler.survival import SurvivalCurve

_PLACE = {name: place for place, name in enumerate(COUNTERS)}
_QUANTILES = (0.25, 0.5, 0.9)
#: Survival below this is "longer than believed possible".
_LEAST_SURVIVAL = 1e-6

_DERIVED = (
    "log_tokens",
    "items",
    "items_left",
    "tokens_per_item",
    "tokens_of_items_left",
    "last_item_tokens",
    "since_item",
    "chars_per_token",
    "chars_per_sentence",
    "inside_fence",
    "lines_share",
    "first_item_share",
    "repeated_share",
    "distinct_share",
    "accept_length",
    *(f"log_left_{int(100 * q)}" for q in _QUANTILES),
    "log_left_mean",
    "log_survival",
)
#: Columns of a row.
NAMES: tuple[str, ...] = (*COUNTERS, *_DERIVED)


def row_of(curve: SurvivalCurve, checkpoint: int, counts: Sequence[int], accept_length: float | None) -> Floats:
    """Return one row, shape (len(NAMES),).

    Parameters
    ----------
    curve : SurvivalCurve
        What was believed about the length at arrival.
    checkpoint : int
        Tokens so far.
    counts : sequence of int
        `laps_sd.data.progress.counting.COUNTERS` after these tokens.
    accept_length : float or None
        Tokens per verify step so far; None where nothing was drafted.
    """
    row = np.empty(len(NAMES))
    row[: len(COUNTERS)] = counts
    row[len(COUNTERS) :] = _derived(checkpoint, counts, accept_length) + _believed(curve, checkpoint)
    return row


def _derived(tokens: int, counts: Sequence[int], accept_length: float | None) -> tuple[float, ...]:
    first, last, before = (counts[_PLACE[name]] for name in ("first_item", "last_item", "item_before_last"))
    items = max(counts[_PLACE["largest_number"]], counts[_PLACE["bullets"]])
    announced = counts[_PLACE["announced_items"]]
    left = max(announced - items, 0) if announced else -1
    per_item = (tokens - first) / items if items else 0.0
    seen = min(tokens, LOOP)
    return (
        log(tokens),
        items,
        left,
        per_item,
        per_item * max(left, 0),
        last - before if before else 0,
        tokens - last if last else -1,
        counts[_PLACE["chars"]] / tokens,
        counts[_PLACE["chars"]] / max(counts[_PLACE["sentence_end"]], 1),
        counts[_PLACE["fence"]] % 2,
        counts[_PLACE["newlines"]] / tokens,
        first / tokens,
        counts[_PLACE["repeated"]] / seen,
        counts[_PLACE["distinct"]] / seen,
        nan if accept_length is None else accept_length,
    )


def _believed(curve: SurvivalCurve, tokens: int) -> tuple[float, ...]:
    """What the arrival curve says of the rest, given that the answer got so far."""
    left = (log(max(curve.quantile(q, tokens), 0.5)) for q in _QUANTILES)
    return (*left, log(curve.mean(tokens)), log(max(curve.survive(tokens), _LEAST_SURVIVAL)))
