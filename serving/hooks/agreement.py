"""Ranks that decide together stand down together, or not at all.

All tensor-parallel ranks run the same hooks on the same requests, so what one of them raises the others raise too, at
the same place. Memory that ran out on one machine is not like that: the ranks would go on with different batches and
wait for each other for ever. Nothing is exchanged while all is well; a rank whose hook raised leaves a note in the
store that torch.distributed has open anyway, and looks for the same note of all others.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

from laps_sd.serving.engine import ParallelOptions

#: Ranks are never further apart than a step or a prefill; the rest of a server waits so long at worst.
TIMEOUT_S = 30.0


class Store(Protocol):
    """A key-value store that all ranks share: the part of ``torch.distributed.Store`` that is used."""

    def set(self, key: str, value: str) -> object:
        """Set a value."""
        raise NotImplementedError

    def wait(self, keys: list[str], timeout: timedelta) -> object:
        """Return once the keys are there; raise after ``timeout``."""
        raise NotImplementedError

    def get(self, key: str) -> bytes:
        """Return a value."""
        raise NotImplementedError


def all_ranks_fail(
    note: str,
    parallel: ParallelOptions,
    store: Callable[[], Store],
    timeout_s: float = TIMEOUT_S,
) -> bool:
    """Whether every rank that decides together with this one leaves the same ``note``.

    With data-parallel attention those are the ranks of one group: the groups schedule requests of their own.

    Parameters
    ----------
    note : str
        What failed, without anything that differs between ranks.
    store : callable
        Gives the store that the ranks share; called only where there are several.
    """
    return _all_leave(note, "stands-down", parallel, store, timeout_s)


def _all_leave(note: str, topic: str, parallel: ParallelOptions, store: Callable[[], Store], timeout_s: float) -> bool:
    """Whether those ranks leave the same note on this topic."""
    size = parallel.tp_size // max(parallel.attn_dp_size, 1)
    if size <= 1:
        return True
    rank = parallel.tp_rank
    group = range(rank // size * size, (rank // size + 1) * size)
    try:
        notes = store()
        notes.set(_key(topic, rank), note)
        others = [_key(topic, other) for other in group if other != rank]
        notes.wait(others, timedelta(seconds=timeout_s))
        return all(notes.get(key).decode() == note for key in others)
    except Exception:  # no store, nobody else within the time, a connection that broke
        return False


def shared_store() -> Store:
    """Return the store that the ranks of this server met in."""
    from torch.distributed import distributed_c10d

    store: Store = distributed_c10d._get_default_store()
    return store


def all_ranks_hold(name: str, parallel: ParallelOptions, store: Callable[[], Store], timeout_s: float) -> bool:
    """Whether every rank that decides together with this one holds the same thing of this ``name``, at the start.

    Several nodes read files of their own, and ranks that refined by different models would decide differently. Who
    waits in vain takes its note back, so that a rank that comes too late finds itself alone too.
    """
    if _all_leave(name, "refines-by", parallel, store, timeout_s):
        return True
    try:
        store().set(_key("refines-by", parallel.tp_rank), "nothing")
    except Exception:  # no store: then nobody else has heard of us
        return False
    return False


def _key(topic: str, rank: int) -> str:
    return f"laps-sd/{topic}/{rank}"
