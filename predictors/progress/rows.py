"""Training and evaluation rows of the refinement: one for each checkpoint of each answer that was counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from laps_sd.data import RequestRecord
from laps_sd.data.progress.classes import VERSION
from laps_sd.data.progress.counting import CHECKPOINTS, COUNTERS
from laps_sd.predictors.arrays import Bools, Floats, Ints
from laps_sd.predictors.progress.columns import NAMES, row_of
from laps_sd.predictors.progress.refiner import log_odds
from laps_sd.scheduler import SurvivalCurve


def counted(record: RequestRecord) -> bool:
    """Whether the record holds counts of this version of an answer whose length is the model's own."""
    table = record.progress_table
    known = table is not None and table.startswith(f"v{VERSION}-")
    return known and record.own_length and bool(record.progress)


def seen_at(record: RequestRecord) -> Iterator[tuple[int, tuple[int, ...], float | None]]:
    """Yield each checkpoint of a counted record, its counts, and the tokens per verify step until there."""
    counts = record.progress or ()
    for place, checkpoint in enumerate(CHECKPOINTS[: len(counts) // len(COUNTERS)]):
        yield (
            checkpoint,
            counts[place * len(COUNTERS) : (place + 1) * len(COUNTERS)],
            accept_length_after(record, checkpoint),
        )


def accept_length_after(record: RequestRecord, tokens: int) -> float | None:
    """Return the tokens per verify step of the first ``tokens`` of an answer; None without steps in order."""
    if not record.accept_lengths:
        return None
    first = max(record.output_tokens - sum(record.accept_lengths), 0)  # the prefill's own token
    steps = sum(done < tokens for done in accumulate(record.accept_lengths, initial=first))
    return tokens / max(steps, 1)


@dataclass(frozen=True)
class Rows:
    """Rows of answers at their checkpoints.

    Attributes
    ----------
    columns : array, shape (n, len(NAMES))
    checkpoint : array of int64, shape (n,)
        Tokens so far.
    owner : array of int64, shape (n,)
        Place of the record that each row is of.
    odds : array, shape (n,)
        Log-odds that the arrival curve gave the answer of going on beyond where it ended, or was cut.
    censored : array of bool, shape (n,)
        Whether it was cut there.
    """

    columns: Floats
    checkpoint: Ints
    owner: Ints
    odds: Floats
    censored: Bools

    @classmethod
    def of(cls, records: Sequence[RequestRecord], curves: Sequence[SurvivalCurve]) -> Rows:
        """Return the rows of counted records of which ``curves`` was believed at arrival."""
        columns, checkpoints, owners, odds = [], [], [], []
        for place, (record, curve) in enumerate(zip(records, curves, strict=True)):
            # Half a token back: lengths are whole, curves are not. Whoever was cut is longer.
            end = np.array([record.output_tokens - (0.0 if record.censored else 0.5)])
            for checkpoint, counts, accept_length in seen_at(record):
                columns.append(row_of(curve, checkpoint, counts, accept_length))
                checkpoints.append(checkpoint)
                owners.append(place)
                odds.append(log_odds(curve, checkpoint, end)[0])
        owner = np.array(owners, dtype=np.int64)
        cut = np.array([record.censored for record in records], dtype=np.bool_)
        return cls(
            np.array(columns).reshape(-1, len(NAMES)),
            np.array(checkpoints, dtype=np.int64),
            owner,
            np.array(odds, dtype=np.float64),
            cut[owner],
        )

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.owner)
