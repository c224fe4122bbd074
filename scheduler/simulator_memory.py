"""KV-cache tokens of the simulated machine."""

from __future__ import annotations

from collections.abc import Hashable
from math import inf


class KvPool:
    """Tokens held by running requests, and tokens that preempted requests left behind until somebody needs the room.

    As in SGLang's radix cache, what a preempted request leaves stays usable but evictable: the request that was
    preempted longest ago loses its tokens first, from their end (leaves before their prefix).

    Parameters
    ----------
    capacity : int or None
        Tokens; None: more than anybody needs.
    """

    def __init__(self, capacity: int | None) -> None:
        self._capacity: float = inf if capacity is None else capacity
        self._left: dict[Hashable, int] = {}
        self._left_total = 0
        self.held = 0

    @property
    def free(self) -> float:
        """Tokens that running requests could still take, evicting what was left behind."""
        return self._capacity - self.held

    def hold(self, tokens: int) -> None:
        """Take ``tokens`` for a running request."""
        if tokens > self.free:
            raise ValueError(f"{tokens} KV tokens were asked for and {self.free:.0f} are free")
        self.held += tokens
        self._evict()

    def release(self, tokens: int) -> None:
        """Give back what a running request held."""
        self.held -= tokens

    def leave(self, key: Hashable, tokens: int) -> None:
        """Keep ``tokens`` of a preempted request (already released) for as long as there is room."""
        self._left[key] = tokens
        self._left_total += tokens
        self._evict()

    def reclaim(self, key: Hashable) -> int:
        """Forget what a request left and return how many of its tokens are still there."""
        tokens = self._left.pop(key, 0)
        self._left_total -= tokens
        return tokens

    def _evict(self) -> None:
        excess = self.held + self._left_total - self._capacity
        while excess > 0 and self._left:
            key, tokens = next(iter(self._left.items()))
            lost = min(tokens, int(excess))
            self._left[key] = tokens - lost
            if tokens == lost:
                del self._left[key]
            self._left_total -= lost
            excess -= lost
