"""The waiting queue in the order of the last round, so that a round costs what changed and not what waits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from laps_sd.scheduler.state import Key, RequestState

#: What tells the state of an item of an engine's queue.
StateOf = Callable[[Any], RequestState]

# Both bound the cost of a round, and no order depends on them.
#: Changes that are made one by one however short the queue is; with more than a share of it, all is sorted.
_FEW = 64
_SHARE = 1 / 32


class RankedQueue:
    """Mirror of an engine's queue as it was sorted last.

    An engine takes requests out of its queue and appends others. While it does no more than that, the list that it
    hands in is this mirror without those that left, and a tail of new requests: a binary search for each shows who
    left, a comparison of all pointers that it is so, and only the tail and the requests whose key changed are put in
    place. Anything else is sorted from scratch. Neither comparing nor moving pointers touches the requests that stay
    where they are: reading 10,000 of them is what a sort costs.
    """

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._keys: list[Key] = []  # of the items, ascending
        self._members: dict[int, tuple[Key, RequestState]] = {}  # the same by arrival number
        self._changed: dict[int, RequestState] = {}  # by arrival number

    def changed(self, state: RequestState) -> None:
        """The request has a new key."""
        if state.arrival in self._members:
            self._changed[state.arrival] = state

    def leave(self, state: RequestState) -> None:
        """The request waits no more."""
        self._changed.pop(state.arrival, None)
        member = self._members.pop(state.arrival, None)
        if member is not None:
            index = bisect_left(self._keys, member[0])
            del self._keys[index], self._items[index]

    def sort(self, queue: list[Any], state_of: StateOf) -> list[RequestState]:
        """Sort ``queue`` in place by the keys of its states.

        ``state_of`` is asked about new items only, if it can.

        Returns
        -------
        list of RequestState
            Those that were here and are no longer, though nobody said that they leave.
        """
        known = len(self._items)
        new = queue[known:]
        del queue[known:]
        unchanged = queue == self._items
        queue += new
        vanished = [] if unchanged and len(new) + len(self._changed) <= _FEW + _SHARE * known else self._vanished(queue)
        if vanished is None:
            return self._sort_all(queue, state_of)
        gone: dict[int, RequestState] = {}
        for index in reversed(vanished):
            arrival = self._keys[index][3]
            gone[arrival] = self._members.pop(arrival)[1]
            self._changed.pop(arrival, None)
            del self._keys[index], self._items[index]
        known = len(self._items)
        if not unchanged:
            new = queue[known:]
            del queue[known:]
            moved = queue != self._items  # what a binary search cannot see
            queue += new
            if moved:
                return self._sort_anew(queue, state_of, gone)
        tail = [(item, state_of(item)) for item in queue[known:]]
        if any(state.arrival in self._members for _, state in tail):  # an engine that moves what it has
            return self._sort_anew(queue, state_of, gone)
        del queue[known:]
        for state in self._changed.values():
            index = bisect_left(self._keys, self._members[state.arrival][0])
            del self._keys[index], self._items[index]
            self._insert(queue, queue.pop(index), state)
        self._changed.clear()
        for item, state in tail:
            gone.pop(state.arrival, None)
            self._insert(queue, item, state)
        return list(gone.values())

    def _vanished(self, queue: list[Any]) -> list[int] | None:
        """Places of items that are missing in front of the tail of ``queue``; None: too much is new, sort all.

        Of a queue that is no mirror without some and a tail, whatever is returned is wrong.
        """
        items = self._items
        most = _FEW + _SHARE * len(items) - len(self._changed)
        missing: list[int] = []
        there = 0  # in the queue; in the mirror it is that and those that are missing
        while (shift := len(missing)) + there < len(items):
            there = _first_other(queue, there, items, shift)
            if there + shift < len(items):
                missing.append(there + shift)
                if len(missing) > most:
                    return None
        return missing if len(missing) + len(queue) - there <= most else None

    def _insert(self, queue: list[Any], item: Any, state: RequestState) -> None:
        key = state.key
        self._members[state.arrival] = key, state
        index = bisect_left(self._keys, key)
        self._keys.insert(index, key)
        self._items.insert(index, item)
        queue.insert(index, item)

    def _sort_anew(self, queue: list[Any], state_of: StateOf, gone: dict[int, RequestState]) -> list[RequestState]:
        """Sort all; ``gone`` are taken out of the mirror already, by mistake if they are in the queue."""
        missing = self._sort_all(queue, state_of)
        return missing + [state for arrival, state in gone.items() if arrival not in self._members]

    def _sort_all(self, queue: list[Any], state_of: StateOf) -> list[RequestState]:
        states = [state_of(item) for item in queue]
        keys = [state.key for state in states]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        queue[:] = [queue[i] for i in order]
        before = self._members
        self._items = queue.copy()
        self._keys = [keys[i] for i in order]
        self._members = {state.arrival: (state.key, state) for state in states}
        self._changed.clear()
        return [state for arrival, (_, state) in before.items() if arrival not in self._members]


def _first_other(queue: list[Any], there: int, items: list[Any], shift: int) -> int:
    """Return the first place from ``there`` on where the queue has not what the mirror has ``shift`` places later.

    Where the queue lacks items and no more, it holds none of those behind the first that is missing at that distance.
    """
    low, high = there, min(len(queue), len(items) - shift)
    while low < high:
        middle = (low + high) // 2
        if queue[middle] is items[middle + shift]:
            low = middle + 1
        else:
            high = middle
    return low
