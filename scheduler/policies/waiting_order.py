"""The waiting queue in the order of the last round, so that a round costs what changed and not what waits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from laps_sd.scheduler.state import Key, RequestState

#: What tells the state of an item of an engine's queue.
StateOf = Callable[[Any], RequestState]

_FEW = 64  # changes that are made one by one however short the queue is; with more than a share of it, all is sorted
_SHARE = 1 / 16


class RankedQueue:
    """Mirror of an engine's queue as it was sorted last.

    An engine takes requests out of its queue and appends others. While it does no more than that, the list that it
    hands in is this mirror and a tail of new requests, which one comparison of pointers shows; then only the tail
    and the requests whose key changed are put in place. Anything else is sorted from scratch. Neither the comparison
    nor moving pointers touches the requests that stay where they are: reading 10,000 of them is what a sort costs.
    """

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._keys: list[Key] = []  # of the items, ascending
        self._key_of: dict[int, Key] = {}  # the same by arrival number
        self._changed: dict[int, RequestState] = {}  # by arrival number

    def changed(self, state: RequestState) -> None:
        """The request has a new key."""
        if state.arrival in self._key_of:
            self._changed[state.arrival] = state

    def leave(self, state: RequestState) -> None:
        """The request waits no more."""
        self._changed.pop(state.arrival, None)
        key = self._key_of.pop(state.arrival, None)
        if key is not None:
            index = bisect_left(self._keys, key)
            del self._keys[index], self._items[index]

    def sort(self, queue: list[Any], state_of: StateOf) -> None:
        """Sort ``queue`` in place by the keys of its states; ``state_of`` is asked about new items only, if it can."""
        known = len(self._items)
        tail = queue[known:]
        if len(tail) + len(self._changed) > _FEW + _SHARE * known:
            self._sort_all(queue, state_of)
            return
        states = [state_of(item) for item in tail]  # it may raise, and then the queue must be whole
        del queue[known:]
        if queue != self._items:
            queue += tail
            self._sort_all(queue, state_of)
            return
        for state in self._changed.values():
            index = bisect_left(self._keys, self._key_of[state.arrival])
            del self._keys[index], self._items[index]
            self._insert(queue, queue.pop(index), state)
        self._changed.clear()
        for item, state in zip(tail, states, strict=True):
            self._insert(queue, item, state)

    def _insert(self, queue: list[Any], item: Any, state: RequestState) -> None:
        key = self._key_of[state.arrival] = state.key
        index = bisect_left(self._keys, key)
        self._keys.insert(index, key)
        self._items.insert(index, item)
        queue.insert(index, item)

    def _sort_all(self, queue: list[Any], state_of: StateOf) -> None:
        keys = [state_of(item).key for item in queue]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        queue[:] = [queue[i] for i in order]
        self._items = queue.copy()
        self._keys = [keys[i] for i in order]
        self._key_of = {key[3]: key for key in self._keys}
        self._changed.clear()
