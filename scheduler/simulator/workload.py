"""What a simulation replays: requests with their arrivals, lengths and accept lengths.

Pure arrays and small frozen objects: reading files is the business of the command.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, isfinite
from typing import TYPE_CHECKING

import numpy as np

from laps_sd.scheduler.posterior.truncated_geometric import acceptance_rate

if TYPE_CHECKING:
    from laps_sd.scheduler.prediction import Prediction
    from laps_sd.scheduler.refinement import Refinement
    from laps_sd.scheduler.service import CostModel


class NoLoadError(ValueError):
    """These requests cannot offer a load: they take no time, or all arrive at once."""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """One request whose future is known to the simulator, and to nobody else but the clairvoyant policy.

    Attributes
    ----------
    request_id : str
    arrival_s : float
        Seconds from the start of the run.
    prompt_tokens, output_tokens : int
    accept_lengths : tuple of int
        Tokens that each verify step emits, the bonus token included. They sum to ``output_tokens``, or to less where
        the prefill emits tokens too (SGLang's emits the first one).
    draft_lengths : tuple of int, optional
        Drafts proposed at each step; None: always ``max_correct_drafts``.
    max_correct_drafts : int
        The most drafts that a step can accept.
    max_new_tokens : int, optional
        The client's limit, which the scheduler may know.
    prediction : Prediction, optional
        What the predictors said at arrival.
    priority : int
        The client's own; higher goes first.
    cached_tokens : int
        Prompt tokens whose KV entries are there when it arrives: a prefix that others share.
    refinements : tuple of Refinement
        What corrects the predicted length while it runs, in the order of the tokens read.
    """

    request_id: str
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    accept_lengths: tuple[int, ...]
    draft_lengths: tuple[int, ...] | None = None
    max_correct_drafts: int = 5
    max_new_tokens: int | None = None
    prediction: Prediction | None = None
    priority: int = 0
    cached_tokens: int = 0
    refinements: tuple[Refinement, ...] = ()

    def __post_init__(self) -> None:
        if not isfinite(self.arrival_s):  # a clock would never reach it
            raise ValueError(f"request {self.request_id}: needs a finite arrival time, got {self.arrival_s}")
        if min(self.prompt_tokens, self.cached_tokens) < 0 or self.output_tokens < 1:
            what = "prompt_tokens and cached_tokens >= 0 and output_tokens >= 1"
            raise ValueError(f"request {self.request_id}: needs {what}")
        if self.first_tokens < 0 or min(self.accept_lengths, default=1) < 1:
            raise ValueError(f"request {self.request_id}: accept_lengths must be >= 1 and sum to at most output_tokens")
        if self.draft_lengths is not None and len(self.draft_lengths) != len(self.accept_lengths):
            raise ValueError(f"request {self.request_id}: draft_lengths and accept_lengths differ in number")
        places = [refinement.at for refinement in self.refinements]
        if places != sorted(set(places)):
            raise ValueError(f"request {self.request_id}: refinements must read more tokens each than the last one")
        if self._overshoots():
            raise ValueError(f"request {self.request_id}: a step emits more than its drafts and the bonus token")

    def _overshoots(self) -> bool:
        if self.draft_lengths is None:
            return max(self.accept_lengths, default=1) > self.max_correct_drafts + 1
        return any(tokens > drafts + 1 for tokens, drafts in zip(self.accept_lengths, self.draft_lengths, strict=True))

    @property
    def steps(self) -> int:
        """Verify steps that the request takes."""
        return len(self.accept_lengths)

    @property
    def first_tokens(self) -> int:
        """Tokens that its prefill emits."""
        return self.output_tokens - sum(self.accept_lengths)

    @property
    def accept_length(self) -> float:
        """Mean tokens per verify step (1 for a request without steps)."""
        return (self.output_tokens - self.first_tokens) / self.steps if self.steps else 1.0

    def drafts(self, step: int) -> int:
        """Drafts proposed at ``step``, counted from 0."""
        return self.max_correct_drafts if self.draft_lengths is None else self.draft_lengths[step]


_NO_WORK = "the requests take no time with this cost model, so no load can be set: give a rate (and no sweep)"


def offered_work_s(requests: Sequence[ReplayRequest], cost: CostModel, slots: int) -> float:
    """Seconds that a machine with all slots busy needs for the requests: prefills and shares of full batches."""
    share = cost.tau(slots) / slots
    return sum(cost.prefill(r.prompt_tokens) + r.steps * share for r in requests)


def load_of(requests: Sequence[ReplayRequest], cost: CostModel, slots: int) -> float:
    """Offered work per second of arrivals, as a share of what the slots can do; inf when all arrive at once."""
    arrivals = [r.arrival_s for r in requests]
    span = max(arrivals) - min(arrivals)
    return _work_per_gap(requests, cost, slots) * (len(requests) - 1) / span if span > 0 else float("inf")


def at_load(requests: Sequence[ReplayRequest], load: float, cost: CostModel, slots: int) -> list[ReplayRequest]:
    """Stretch or squeeze the arrivals, keeping their pattern, until the offered load is ``load``.

    Raises
    ------
    ValueError
        When ``load`` is not positive.
    NoLoadError
        When all requests arrive at the same moment or take no time: no stretching gives them a load.
    """
    if load <= 0:
        raise ValueError(f"load must be positive, got {load}")
    if _work_per_gap(requests, cost, slots) == 0:
        raise NoLoadError(_NO_WORK)
    current = load_of(requests, cost, slots)
    if current == float("inf"):
        raise NoLoadError(
            f"the {len(requests)} requests of a replay arrive at the same moment, so no load can be set: replay more "
            "of them, or give a rate (and no sweep)"
        )
    start = min(r.arrival_s for r in requests)
    return [replace(r, arrival_s=(r.arrival_s - start) * current / load) for r in requests]


def rate_for_load(requests: Sequence[ReplayRequest], load: float, cost: CostModel, slots: int) -> float:
    """Requests per second that offer ``load``; `NoLoadError` when they take no time."""
    if load <= 0:
        raise ValueError(f"load must be positive, got {load}")
    work = _work_per_gap(requests, cost, slots)
    if work == 0:
        raise NoLoadError(_NO_WORK)
    return load / work


def _work_per_gap(requests: Sequence[ReplayRequest], cost: CostModel, slots: int) -> float:
    return offered_work_s(requests, cost, slots) / len(requests)


def gamma_arrivals(n: int, rate: float, rng: np.random.Generator, cv: float = 1.0) -> np.ndarray:
    """Draw ``n`` arrival times.

    Parameters
    ----------
    rate : float
        Requests per second.
    cv : float
        Coefficient of variation of the gaps: 1 is a Poisson process, above 1 comes in bursts, 0 is a metronome.

    Returns
    -------
    ndarray of shape (n,)
        Seconds, non-decreasing, the first at one gap.
    """
    if rate <= 0 or cv < 0:
        raise ValueError(f"rate must be positive and cv must not be negative, got {rate} and {cv}")
    if cv == 0:
        return np.arange(1, n + 1) / rate
    return np.cumsum(rng.gamma(1 / cv**2, cv**2 / rate, n))


def with_arrivals(requests: Sequence[ReplayRequest], arrivals: np.ndarray) -> list[ReplayRequest]:
    """Give the requests, in their order, the arrival times."""
    return [replace(r, arrival_s=float(t)) for r, t in zip(requests, arrivals, strict=True)]


def geometric_accept_lengths(tokens: int, mean: float, max_drafts: int, rng: np.random.Generator) -> tuple[int, ...]:
    """Draw accept lengths that sum to ``tokens`` from the truncated geometric law with this mean per step.

    Leviathan et al. 2023, equation 1: a step with per-token acceptance α emits min(Geometric, ``max_drafts``) + 1.
    """
    alpha = acceptance_rate(mean, max_drafts)
    if alpha >= 1.0 or max_drafts == 0:
        return cut([max_drafts + 1] * ceil(tokens / (max_drafts + 1)), tokens)
    # tokens steps always suffice: each emits one token at least.
    drafts = np.minimum(rng.geometric(1 - alpha, tokens) - 1, max_drafts)
    return cut((drafts + 1).tolist(), tokens)


def resampled_accept_lengths(tokens: int, donor: Sequence[int], rng: np.random.Generator) -> tuple[int, ...]:
    """Accept lengths of a real request, read round and round from a random step on, until they sum to ``tokens``.

    Unlike independent draws this keeps the correlation of neighbouring steps.
    """
    if not len(donor):
        raise ValueError("a donor of accept lengths needs at least one step")
    start = int(rng.integers(len(donor)))
    once = [*donor[start:], *donor[:start]]
    return cut(once * ceil(tokens / sum(once)), tokens)


def histogram_accept_lengths(tokens: int, histogram: Sequence[int], rng: np.random.Generator) -> tuple[int, ...]:
    """Accept lengths of a request that kept only its histogram of correct drafts: the same steps in a drawn order."""
    steps = np.repeat(np.arange(1, len(histogram) + 1), histogram)
    if not len(steps):
        return (1,) * tokens
    return resampled_accept_lengths(tokens, rng.permutation(steps).tolist(), rng)


def cut(accept_lengths: Sequence[int], tokens: int) -> tuple[int, ...]:
    """Leave out the steps after the last token, and shorten the last one, as the end of a request does."""
    kept: list[int] = []
    left = tokens
    for emitted in accept_lengths:
        if left <= 0:
            break
        kept.append(min(int(emitted), left))
        left -= kept[-1]
    return tuple(kept)
