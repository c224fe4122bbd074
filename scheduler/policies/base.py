"""What a scheduling policy is: it keeps a place (``key``) for every request, and says who gives way to whom.

The engine (a simulator or SGLang) calls the hooks as things happen, sorts its waiting requests by ``key`` once a
round, admits from the front, and asks for a victim when the front request finds no room. A policy looks at nothing
but request states and rounds: no clock and no random numbers, so every tensor-parallel rank decides alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor
from typing import Any

from laps_sd.scheduler.policies.waiting_order import StateOf
from laps_sd.scheduler.refinement import Refinement
from laps_sd.scheduler.service import CostModel, PrefillSteps
from laps_sd.scheduler.settings import Settings
from laps_sd.scheduler.state import RequestState

#: Tokens that SGLang's admission expects of a request without a limit (its ``CLIP_MAX_NEW_TOKENS``).
_CLIPPED = 4096
#: Places that a verify step is divided into: far more than an estimate can know, far fewer than a float holds.
_PER_STEP = 65_536.0


def itself(item: RequestState) -> RequestState:
    """Return the state, where a queue holds states."""
    return item


def comparable(service: float) -> float:
    """Return the service (verify steps), or a place in rounds, to the nearest multiple of 2⁻¹⁶, for an order.

    Exponentials, logarithms and sums of arrays differ in their last bits between processors, with AVX-512 and without,
    and ranks on unlike nodes must order alike.
    """
    return floor(service * _PER_STEP + 0.5) / _PER_STEP


@dataclass(slots=True)
class Engine:
    """What the engine says about itself while it admits requests.

    Attributes
    ----------
    launching : bool
        A prefill runs after this round in any case: somebody was admitted, or the rest of a long prompt is due.
    keeps_kv : bool
        What a preempted request computed stays in the cache, evictable; False: only its prompt does.
    """

    launching: bool = False
    keeps_kv: bool = True


class Policy:
    """First come, first served, and the base of all others.

    Parameters
    ----------
    settings : Settings, optional
        Constants; each policy reads those that concern it.
    cost : CostModel, optional
        What prefill and recomputation cost, in verify steps. Default: nothing.
    slots : int
        Requests that run together, for the share of a verify step that a prefill token costs.
    """

    name = "fcfs"
    #: Whether `victim` may ever name somebody: an engine may skip the question while it has no free slot.
    preemptive = False
    #: Whether predictions enter the order: if not, a server may start without a bundle.
    uses_predictions = False
    #: Whether it looks at what only a replay knows (``true_steps``): such a policy cannot be served.
    clairvoyant = False

    def __init__(self, settings: Settings | None = None, cost: CostModel | None = None, slots: int = 1) -> None:
        self.settings = settings or Settings()
        self.now = 0  # rounds since the start
        self.prefill = PrefillSteps(cost or CostModel.unit(), slots)
        self.engine = Engine()

    def set_cost(self, cost: CostModel, slots: int) -> None:
        """Change what prefill costs, for instance when it was measured; requests placed before keep their places."""
        self.prefill.set(cost, slots)

    # --- what the engine tells -------------------------------------------------------------------------------

    def start_round(self, rounds: int = 1) -> None:
        """A scheduling round (decode iteration) begins; ``rounds`` at once when the engine was idle or jumped."""
        self.now += rounds

    def on_arrival(self, state: RequestState) -> None:
        """The request joined the waiting ones."""
        state.waiting_since = self.now
        self.place(state)

    def on_admit(self, state: RequestState) -> None:
        """The request got a slot."""
        state.on_admit()

    def on_step(self, state: RequestState, k: int, n: int, tokens: int) -> None:
        """One verify step of the request accepted ``k`` of ``n`` drafts and emitted ``tokens``."""
        state.on_step(k, n, tokens)

    def on_refine(self, state: RequestState, refinement: Refinement) -> None:
        """What the request has said so far corrects its predicted length, while it runs or waits again."""
        state.on_refine(refinement)
        self.place(state)

    def on_preempt(self, state: RequestState, cached_tokens: int = 0) -> None:
        """The request lost its slot; the KV entries of ``cached_tokens`` of its context remain."""
        state.on_preempt(cached_tokens, self.now)
        self.place(state)

    def on_finish(self, state: RequestState) -> None:
        """The request ended by itself."""
        state.running = False

    def on_abort(self, state: RequestState) -> None:
        """The request is gone without having ended by itself: aborted, or cut at its limit of output tokens."""
        state.running = False

    # --- what the engine asks --------------------------------------------------------------------------------

    def rank(self, waiting: list[Any], state_of: StateOf = itself) -> Sequence[RequestState]:
        """Sort the waiting requests in place, the next to be served first.

        Parameters
        ----------
        waiting : list
            States, or the engine's own objects. A round is cheap where the engine hands in the order of the last
            one without those that left, and with new ones at the end.
        state_of : callable
            State of an item; need not be asked about items that were ranked before.

        Returns
        -------
        sequence of RequestState
            Requests that were ranked before and are missing now although no hook said that they leave, as far as the
            policy noticed. The engine, which knows whether they are gone, says so with `on_abort`.
        """
        waiting.sort(key=lambda item: state_of(item).key)
        return ()

    def victim(self, candidate: RequestState, running: Sequence[Any], state_of: StateOf = itself) -> Any | None:
        """Return the item of ``running`` that should give way to ``candidate``, or None.

        Items are states, or the engine's own objects whose states ``state_of`` tells.
        """
        return None

    def gathers(self, front: RequestState, free: int, waiting: int, running: int) -> bool:
        """Whether freed slots stay empty for now, so that more of them are filled by one prefill launch.

        Asked once a round in which nothing is being prefilled, somebody waits and a slot is free.

        Parameters
        ----------
        front : RequestState
            Who would be admitted first.
        free, waiting, running : int
            Empty slots, waiting requests, and running ones: for these a launch is a stall.
        """
        return False

    def may_pass(self, blocked: RequestState) -> bool:
        """Whether requests behind ``blocked``, for which there is no KV room, may be tried."""
        return False

    def reserve_tokens(self, state: RequestState) -> int:
        """KV tokens to keep free for what the request has still to produce."""
        cap = _CLIPPED if state.max_new_tokens is None else state.max_new_tokens
        return max(cap - state.generated, 1)

    @property
    def trust(self) -> float | None:
        """How far predictions are believed now, 0 to 1; None: the policy keeps no such number."""
        return None

    def perceptible(self, state: RequestState) -> bool:
        """Whether the request's acceptance has become stable, so that its execution time can be estimated."""
        return state.posterior.stable(self.settings.stability)

    def work_left(self, state: RequestState) -> tuple[float, float] | None:
        """Return the output tokens and verify steps that the request is believed to need still, for a display.

        None: nothing is known of it. Prefill is not in it.
        """
        if state.runs_to_limit:
            tokens = float(state.limit_left)
        elif state.prediction is None:
            return None
        else:
            curve = state.refinements[-1].curve if state.refinements else state.prediction.length
            tokens = curve.mean(state.generated, state.max_new_tokens)
        return tokens, tokens * state.posterior.steps_per_token()

    # --- what a policy is -------------------------------------------------------------------------------------

    def place(self, state: RequestState) -> None:
        """Compute the key anew: because the request arrived, ran, or was preempted."""
        state.key = (state.tier, 0, 0.0, state.arrival)
