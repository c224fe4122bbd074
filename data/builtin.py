"""The trace that ships with the package: our own prompts, answered by the demo model on the CPU server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

from laps_sd.data.records.reading import read_records
from laps_sd.data.records.schema import RequestRecord
from laps_sd.errors import InputError

Draft = Literal["ngram", "standalone"]
DRAFTS: tuple[Draft, ...] = get_args(Draft)

#: How the shipped trace was made, and is made again.
SEED = 0
CONCURRENCY = 16
MAX_NEW_TOKENS = 384
#: The prompts of each draft: first and count in the generator's list, apart so that no prompt is in the trace twice.
PROMPTS: dict[Draft, tuple[int, int]] = {"ngram": (0, 1000), "standalone": (1000, 500)}

_FOLDER = Path(__file__).resolve().parent / "traces"


def known_draft(name: str) -> Draft:
    """Return the draft of that name, or raise InputError."""
    for draft in DRAFTS:
        if draft == name:
            return draft
    raise InputError(f"unknown draft {name!r} of the built-in trace; there are {' and '.join(DRAFTS)}")


def builtin_path(draft: Draft) -> Path:
    """Return the file of one draft."""
    return _FOLDER / f"smollm2-135m-{known_draft(draft)}.parquet"


def builtin_trace(draft: Draft | None = None) -> list[RequestRecord]:
    """Return the records that ship with the package.

    SmolLM2-135M-Instruct, greedy, 16 requests at once, answers cut at 384 tokens (then censored).

    Parameters
    ----------
    draft
        ``ngram``: SGLang's n-gram drafts, eight draft tokens a step. ``standalone``: the model's own first 24 of 30
        layers as draft model, three drafts a step. None: both, one after the other.
    """
    return list(_records(draft))


def _records(draft: Draft | None) -> Iterator[RequestRecord]:
    for one in DRAFTS if draft is None else (draft,):
        yield from read_records(builtin_path(one))
