"""KV-cache tokens of the simulated machine."""

from __future__ import annotations

from math import inf

from laps_sd.scheduler.state import RequestState


class KvPool:
    """Tokens held by running requests, and tokens that preempted ones left behind until somebody needs the room.

    As in SGLang's radix cache, what a preempted request leaves stays usable but evictable: the request that was
    preempted longest ago loses its tokens first, from their end (leaves before their prefix).

    Parameters
    ----------
    capacity : int or None
        Tokens; None: more than anybody needs.
    """

    def __init__(self, capacity: int | None) -> None:
        self.capacity: float = inf if capacity is None else capacity
        self.held = 0
        self._left: dict[RequestState, None] = {}  # in the order of their preemption
        self._left_total = 0

    @property
    def free(self) -> float:
        """Tokens that running requests could still take, evicting what was left behind."""
        return self.capacity - self.held

    def hold(self, tokens: int) -> None:
        """Take ``tokens`` for running requests."""
        if tokens > self.free:
            raise ValueError(f"{tokens} KV tokens were asked for and {self.free:.0f} are free")
        self.held += tokens
        self._evict()

    def release(self, tokens: int) -> None:
        """Give back what a running request held."""
        self.held -= tokens

    def leave(self, state: RequestState) -> None:
        """Keep the ``cached_tokens`` of a preempted request (already released) for as long as there is room."""
        self._left[state] = None
        self._left_total += state.cached_tokens
        self._evict()

    def reclaim(self, state: RequestState) -> None:
        """The request runs again: what it left and still has (``cached_tokens``) is its own."""
        if state in self._left:
            del self._left[state]
            self._left_total -= state.cached_tokens

    def _evict(self) -> None:
        excess = self.held + self._left_total - self.capacity
        while excess > 0 and self._left:
            state = next(iter(self._left))
            lost = min(state.cached_tokens, int(excess))
            state.cached_tokens -= lost
            self._left_total -= lost
            excess -= lost
            if state.cached_tokens == 0:
                del self._left[state]
