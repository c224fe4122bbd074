"""The predicted backlog: what the requests of a server have still to do, in tokens, verify steps and seconds."""

from collections.abc import Sequence
from dataclasses import dataclass

from laps_sd.scheduler import CostModel, Policy, RequestState

#: Of more requests than this every second one is asked, or every third …: the policy's answer takes 5 µs, and a round
#: waits for all of them.
_ASKED = 200


@dataclass(frozen=True, slots=True)
class Backlog:
    """Work of some requests that is left by prediction.

    Attributes
    ----------
    tokens : float
        Output tokens.
    steps : float
        Verify steps (decode steps without drafts), each request's own.
    prefill_tokens : float
        Prompt tokens, or recomputed ones, before their next step.
    """

    tokens: float
    steps: float
    prefill_tokens: float

    def seconds(self, cost: CostModel, together: int) -> float:
        """Return how long it takes to do all of it while ``together`` requests decode at once; no launch is counted."""
        together = max(together, 1)
        return self.steps / together * cost.tau(together) + self.prefill_tokens * cost.prefill_s_per_token


def backlog_of(states: Sequence[RequestState], policy: Policy) -> Backlog:
    """Return what is left of these requests, as the policy believes it.

    Those of whom nothing is known count for nothing. Of many requests a part is asked and stands for all.
    """
    asked = states[:: _every(states)]
    tokens = steps = prefill = 0.0
    for state in asked:
        prefill += state.prefill_tokens
        left = policy.work_left(state)
        if left is not None:
            tokens += left[0]
            steps += left[1]
    share = len(states) / len(asked) if asked else 1.0
    return Backlog(tokens * share, steps * share, prefill * share)


def order_gain(states: Sequence[RequestState], policy: Policy, together: int) -> float:
    """Return the mean wait that the order saves the waiting requests, verify steps, as it stands now.

    Each waits for what goes before it, shared by ``together`` slots: in the order of arrival, less that in the order
    of the policy, by the work that is believed to be left. Of many requests a part is asked and stands for all.
    """
    every = _every(states)
    known = [(state, left[1]) for state in states[::every] if (left := policy.work_left(state)) is not None]
    if not known:
        return 0.0

    def mean_wait(order: Sequence[tuple[RequestState, float]]) -> float:
        before = total = 0.0
        for _, steps in order:
            total += before
            before += steps
        return total / len(order)

    by_arrival = mean_wait(sorted(known, key=lambda pair: pair[0].arrival))
    by_policy = mean_wait(sorted(known, key=lambda pair: pair[0].key))
    return (by_arrival - by_policy) * every / max(together, 1)


def _every(states: Sequence[RequestState]) -> int:
    """Return 1 where all are asked, 2 where every second one is, and so on."""
    return -(-len(states) // _ASKED) or 1
