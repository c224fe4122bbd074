"""In-flight refinement in the scheduler process: which requests are due, and what their answers say. No SGLang here.

Everything is a function of the tokens that a request has produced and of the order of its steps, so every rank refines
the same requests in the same round. A round refines only so many; the others wait for the next one, and whoever has
passed another checkpoint meanwhile is refined once, at the last.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from laps_sd.data.progress.classes import TokenClasses
from laps_sd.data.progress.counting import counts_after, progress_of
from laps_sd.scheduler import Policy, Refinement, RequestState, SurvivalCurve
from laps_sd.serving.engine import Req

if TYPE_CHECKING:
    from laps_sd.predictors.progress.refiner import Refiner


class Refining:
    """Correct predicted lengths by what was said so far.

    Parameters
    ----------
    classes : TokenClasses
        Of the served model's tokenizer.
    refiner : Refiner or None
        What a bundle learned; None, and one that was trained with another tokenizer: nothing is refined.
    per_round : int
        Most refinements in one scheduling round.
    """

    def __init__(self, classes: TokenClasses, refiner: Refiner | None, per_round: int) -> None:
        self.classes = classes
        self.refiner = refiner if refiner is not None and classes.name in refiner.tables else None
        self._per_round = per_round
        self._checkpoints = () if self.refiner is None else self.refiner.checkpoints
        self._due: dict[int, tuple[Req, RequestState, SurvivalCurve]] = {}  # by arrival, in the order they came due

    def next_after(self, tokens: int) -> float:
        """Return the output length, tokens, at which a request is refined next; inf: never again."""
        place = bisect_right(self._checkpoints, tokens)
        return self._checkpoints[place] if place < len(self._checkpoints) else inf

    def note(self, req: Req, state: RequestState, curve: SurvivalCurve) -> None:
        """Note that the request has passed a checkpoint; ``curve`` is what was believed at its arrival."""
        self._due.setdefault(state.arrival, (req, state, curve))

    def forget(self, arrival: int) -> None:
        """Refine a request no more: it has ended."""
        self._due.pop(arrival, None)

    def clear(self) -> None:
        """Forget all requests."""
        self._due.clear()

    def refine_some(self, policy: Policy) -> int:
        """Refine those that are due, as many as a round may; return how many."""
        refined = 0
        for arrival in list(islice(self._due, self._per_round)):
            req, state, curve = self._due.pop(arrival)
            refined += self._refine(policy, req, state, curve)
        return refined

    def _refine(self, policy: Policy, req: Req, state: RequestState, curve: SurvivalCurve) -> bool:
        said = len(req.output_ids)
        place = bisect_right(self._checkpoints, said) - 1
        last = state.refinements[-1].at if state.refinements else 0
        if self.refiner is None or place < 0 or self._checkpoints[place] <= last:
            return False
        checkpoint = self._checkpoints[place]
        ids = np.array(req.output_ids[:checkpoint], dtype=np.int64)
        counts = counts_after(ids, self.classes).tolist()
        accept_length = state.generated / state.steps if req.laps_sd.proposed and state.steps else None
        refined = self.refiner.refine(curve, checkpoint, counts, accept_length)
        if refined is None:
            return False
        policy.on_refine(state, Refinement(checkpoint, refined))
        return True

    def recorded(self, req: Req) -> tuple[list[int], str]:
        """Return ``progress`` and ``progress_table`` of the record of a request that has ended."""
        counts, table = progress_of(req.output_ids_through_stop, self.classes)
        return list(counts), table
