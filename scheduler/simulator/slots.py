"""Who holds a slot of the simulated machine, and the KV tokens that come with it."""

from __future__ import annotations

from collections.abc import Sequence

from laps_sd.scheduler.policies.base import Policy
from laps_sd.scheduler.simulator.kv_pool import KvPool
from laps_sd.scheduler.simulator.machine import Machine
from laps_sd.scheduler.state import RequestState


class Slots:
    """Requests that got a slot; who gets the next one, and who gives one up, is asked of the policy.

    Attributes
    ----------
    running : list of RequestState
        Decoding.
    prefilling : list of (RequestState, int)
        Admitted, with the tokens still to compute.
    kv : KvPool
    """

    def __init__(self, machine: Machine, policy: Policy) -> None:
        self._machine, self._policy = machine, policy
        self.kv = KvPool(machine.kv_tokens)
        self._expected = 0  # KV tokens held and reserved, where they are limited
        self.running: list[RequestState] = []
        self.prefilling: list[tuple[RequestState, int]] = []

    @property
    def taken(self) -> int:
        """Slots that are not free."""
        return len(self.running) + len(self.prefilling)

    @property
    def full(self) -> bool:
        """Whether no slot is free."""
        return self.taken >= self._machine.slots

    def count_expected(self) -> None:
        """A round of admissions begins: count anew what requests hold and what the policy expects them to produce."""
        if self._machine.kv_tokens is not None:
            self._expected = sum(map(self._kv_of, (*self.running, *(state for state, _ in self.prefilling))))

    def victims_for(self, candidate: RequestState) -> list[RequestState] | None:
        """Who must give way so that the candidate gets a slot and its KV tokens; None when they will not."""
        others = self.running
        victims: list[RequestState] = []
        slot_needed = self.full
        while slot_needed or not self._fits(candidate, victims):
            victim = self._policy.victim(candidate, others) if others else None
            if victim is None:
                return None
            slot_needed = False
            victims.append(victim)
            others = [s for s in others if s is not victim]
        return victims

    def can_hold(self, state: RequestState) -> bool:
        """Whether there is room for its context and one token more; if not, it fails."""
        return state.context_tokens + 1 <= self.kv.free

    def admit(self, state: RequestState) -> int:
        """Give the request a slot; return the tokens that its prefill computes."""
        if self._machine.kv_tokens is not None:
            self._expected += self._kv_of(state)
        self.kv.reclaim(state)
        # The last token is always computed: its logits are what goes on.
        state.cached_tokens = max(min(state.cached_tokens, state.context_tokens - 1), 0)
        tokens = state.prefill_tokens
        self.kv.hold(state.context_tokens)
        self._policy.on_admit(state)
        self.prefilling.append((state, tokens))
        return tokens

    def preempt(self, state: RequestState, *, keep: bool) -> None:
        """Take the slot of a running request; ``keep`` what it generated in the cache, or only its prompt."""
        if self._machine.kv_tokens is not None:
            self._expected -= self._kv_of(state)
        self.running.remove(state)
        self.kv.release(state.context_tokens)
        self._policy.on_preempt(state, state.context_tokens if keep else state.prompt_tokens)
        self.kv.leave(state)

    def _fits(self, candidate: RequestState, victims: Sequence[RequestState]) -> bool:
        """Whether KV tokens suffice for what requests hold and for what the policy expects them to produce."""
        if self._machine.kv_tokens is None:
            return True
        if len(victims) == len(self.running) and not self.prefilling:
            return True  # alone on the machine it runs as far as it gets
        freed = sum(map(self._kv_of, victims))
        return self._expected - freed + self._kv_of(candidate) <= self.kv.capacity

    def _kv_of(self, state: RequestState) -> int:
        return state.context_tokens + self._policy.reserve_tokens(state)
