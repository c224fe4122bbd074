"""What is in a trace: counts, distributions, duplicates, and the same by source, category and draft."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from laps_sd.data.groups import normalised
from laps_sd.data.schema import COLUMN_NAMES, RequestRecord
from laps_sd.errors import InputError

_QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99}


@dataclass
class _Gathered:
    """The numbers of some rows."""

    output_tokens: list[int] = field(default_factory=list)
    prompt_tokens: list[int] = field(default_factory=list)
    accept_lengths: list[float] = field(default_factory=list)
    censored: int = 0

    def add(self, record: RequestRecord) -> None:
        self.output_tokens.append(record.output_tokens)
        if record.prompt_tokens:
            self.prompt_tokens.append(record.prompt_tokens)
        accept_length = record.accept_length
        if accept_length is not None:
            self.accept_lengths.append(accept_length)
        self.censored += record.censored

    def summary(self) -> dict[str, Any]:
        n = len(self.output_tokens)
        return {
            "n": n,
            "censored_share": self.censored / n,
            "prompt_tokens": distribution(self.prompt_tokens),
            "output_tokens": distribution(self.output_tokens),
            "accept_length": distribution(self.accept_lengths),
        }


def distribution(values: list[int] | list[float]) -> dict[str, float] | None:
    """Return count, mean, extremes and quantiles of some numbers; None when there are none."""
    if not values:
        return None
    array = np.asarray(values, dtype=float)
    quantiles = np.quantile(array, list(_QUANTILES.values()))
    return {
        "n": array.size,
        "mean": float(array.mean()),
        "min": float(array.min()),
        **{name: float(value) for name, value in zip(_QUANTILES, quantiles, strict=True)},
        "max": float(array.max()),
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
    texts, words, groups = Counter[bytes](), Counter[bytes](), set[str]()
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
            texts[_digest(record.prompt)] += 1
            words[_digest(normalised(record.prompt))] += 1
        if record.group is not None:
            groups.add(record.group)
    if not everything.output_tokens:
        raise InputError("there are no records to describe")
    prompts = sum(texts.values())
    return {
        **everything.summary(),
        "finish_reasons": dict(ends),
        "prompts": {
            "n": prompts,
            "exact_duplicates": prompts - len(texts),
            "same_words": prompts - len(words),
            "groups": len(groups) or None,
        },
        **{
            f"by_{name}": {key: parts[key].summary() for key in sorted(parts)} if parts else None
            for name, parts in by.items()
        },
        "fields": {name: known[name] for name in COLUMN_NAMES},
        "unknown_columns": dict(sorted(extra.items())) or None,
    }


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
