"""What is in a trace: counts, distributions, duplicates, and the same by source, category and draft."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from laps_sd.data.groups.split import normalised
from laps_sd.data.records.schema import COLUMN_NAMES, RequestRecord
from laps_sd.data.records.seen import SeenIds
from laps_sd.errors import InputError

_QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99}


@dataclass
class _Gathered:
    """The numbers of some rows: how often each length occurs, so that ten million rows take no more room than a few."""

    output_tokens: Counter[float] = field(default_factory=Counter)
    prompt_tokens: Counter[float] = field(default_factory=Counter)
    accept_lengths: Counter[float] = field(default_factory=Counter)
    censored: int = 0

    def add(self, record: RequestRecord) -> None:
        self.output_tokens[record.output_tokens] += 1
        if record.prompt_tokens:
            self.prompt_tokens[record.prompt_tokens] += 1
        accept_length = record.accept_length
        if accept_length is not None:
            self.accept_lengths[round(accept_length, 4)] += 1
        self.censored += record.censored

    def summary(self) -> dict[str, Any]:
        n = self.output_tokens.total()
        return {
            "n": n,
            "censored_share": self.censored / n,
            "prompt_tokens": distribution(self.prompt_tokens),
            "output_tokens": distribution(self.output_tokens),
            "accept_length": distribution(self.accept_lengths),
        }


class _Repeats:
    """Counts texts that were there before, eight bytes a text."""

    def __init__(self) -> None:
        self.texts = 0
        self._repeated = 0
        self._seen = SeenIds()
        self._block: list[str] = []

    def add(self, text: str) -> None:
        self.texts += 1
        self._block.append(text)
        if len(self._block) >= 256:
            self._flush()

    def _flush(self) -> None:
        self._repeated += len(self._seen.repeated(self._block))
        self._block = []

    @property
    def repeated(self) -> int:
        self._flush()
        return self._repeated


def distribution(counts: Mapping[float, int]) -> dict[str, float] | None:
    """Return count, mean, extremes and quantiles (linear interpolation); None when there are no numbers.

    Parameters
    ----------
    counts
        How often each value occurs.
    """
    if not counts:
        return None
    values = np.array(sorted(counts), dtype=float)
    times = np.array([counts[value] for value in sorted(counts)])
    ends = np.cumsum(times)
    n = int(ends[-1])
    places = np.array(list(_QUANTILES.values())) * (n - 1)
    below, above = (values[np.searchsorted(ends, at, side="right")] for at in (np.floor(places), np.ceil(places)))
    quantiles = below + (above - below) * (places - np.floor(places))
    return {
        "n": n,
        "mean": float(values @ times / n),
        "min": float(values[0]),
        **{name: float(value) for name, value in zip(_QUANTILES, quantiles, strict=True)},
        "max": float(values[-1]),
    }


def describe(records: Iterable[RequestRecord]) -> dict[str, Any]:
    """Return the description of a trace as plain numbers, ready for JSON.

    Lengths are in tokens, accept lengths in tokens per verify step, bonus included. Censored answers are in the
    distributions with the length at which they were cut; how many there are stands beside them.

    Parameters
    ----------
    records
        The records; an iterator is read once and not kept.
    """
    everything = _Gathered()
    by: dict[str, dict[str, _Gathered]] = {"source": {}, "category": {}, "draft": {}, "model": {}}
    known: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    extra: Counter[str] = Counter()
    texts, words, groups = _Repeats(), _Repeats(), set[str]()
    for record in records:
        everything.add(record)
        for name, parts in by.items():
            value: str | None = attrgetter(name)(record)
            if value is not None:
                parts.setdefault(value, _Gathered()).add(record)
        ends[record.finish_reason] += 1
        values = zip(RequestRecord.__struct_fields__, msgspec.structs.astuple(record), strict=True)
        known.update(name for name, value in values if value is not None)
        extra.update(record.extra.keys())
        if record.prompt is not None:
            texts.add(record.prompt)
            words.add(normalised(record.prompt))
        if record.group is not None:
            groups.add(record.group)
    if not everything.output_tokens:
        raise InputError("there are no records to describe")
    return {
        **everything.summary(),
        "finish_reasons": dict(ends),
        "prompts": {
            "n": texts.texts,
            "exact_duplicates": texts.repeated,
            "same_words": words.repeated,
            "groups": len(groups) or None,
        },
        **{
            f"by_{name}": {key: parts[key].summary() for key in sorted(parts)} if parts else None
            for name, parts in by.items()
        },
        "fields": {name: known[name] for name in COLUMN_NAMES},
        "unknown_columns": dict(sorted(extra.items())) or None,
    }
