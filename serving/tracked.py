"""Our side of one request in the scheduler process, and what it says when the request ends."""

from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from laps_sd.scheduler import RequestState
from laps_sd.serving.wire import Carried


@dataclass(slots=True, eq=False, weakref_slot=True)
class Tracked:
    """Our side of one request in the scheduler process.

    Attributes
    ----------
    arrival : int
        Number in the order of arrival; SGLang re-stamps its own at every preemption.
    carried : Carried
        What the tokenizer process sent along.
    state : RequestState or None
        From the moment it first waits.
    step_tokens : int
        Tokens that its decode steps emitted (the prefill's first token is not among them).
    proposed : bool
        Whether any of its steps had drafts to verify.
    accept_lengths, draft_lengths : list of int
        Tokens of each verify step and drafts proposed in it; kept only for the record.
    received_s, queue_s, ttft_s : float or None
        Seconds on this process's clock, and waits after it; for the record, never for a rank.
    """

    arrival: int
    carried: Carried
    state: RequestState | None = None
    step_tokens: int = 0
    proposed: bool = False
    accept_lengths: list[int] = field(default_factory=list)
    draft_lengths: list[int] = field(default_factory=list)
    received_s: float = field(default_factory=perf_counter)
    queue_s: float | None = None
    ttft_s: float | None = None


def fields_of(tracked: Tracked, state: RequestState) -> dict[str, Any]:
    """Per-request fields of the response; None where there is nothing to say."""
    prediction = tracked.carried.prediction
    return {
        "predicted_tokens": None if prediction is None else prediction.length.mean(0, state.max_new_tokens),
        "predicted_accept_length": None if prediction is None else prediction.accept_length,
        "accept_length": tracked.step_tokens / state.steps if tracked.proposed else None,
        "steps": state.steps,
        "level": state.queue,
        "preemptions": state.preemptions,
        "recomputed_tokens": state.recomputed_tokens,
        "priority": state.priority,
    }


def measured_of(tracked: Tracked, state: RequestState) -> dict[str, Any]:
    """What only this process knows of a finished request, for its record."""
    measured: dict[str, Any] = {
        "queue_s": tracked.queue_s,
        "ttft_s": tracked.ttft_s,
        # SGLang warms the prefix of several samples (n > 1) with a copy whose limit is 0: only here is that seen.
        "max_new_tokens": state.max_new_tokens,
    }
    if tracked.proposed:
        histogram = [0] * max(tracked.accept_lengths)
        for accepted in tracked.accept_lengths:
            histogram[accepted - 1] += 1
        measured["correct_drafts_histogram"] = histogram
        measured["accept_lengths"] = tracked.accept_lengths
        measured["draft_lengths"] = tracked.draft_lengths
    return measured
