"""One request as the scheduler sees it, the same object in a simulation and inside SGLang."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from laps_sd.scheduler.posterior.base import AcceptancePosterior
from laps_sd.scheduler.posterior.factory import make_posterior
from laps_sd.scheduler.prediction import Prediction
from laps_sd.scheduler.refinement import Refinement
from laps_sd.scheduler.settings import Settings

#: (tier, queue, order inside the queue, arrival number): lower goes first, and no two are equal.
Key = tuple[float, float, float, int]
#: (tier, gain, arrival number): higher gives way more readily.
VictimRank = tuple[float, float, int]


@dataclass(slots=True, eq=False)
class RequestState:
    """What is known of a request now. Build one with `new_request`.

    Attributes
    ----------
    arrival : int
        Arrival number, unique; breaks every tie.
    prompt_tokens : int
    posterior : AcceptancePosterior
        Belief about its tokens per verify step.
    prediction : Prediction or None
    hinted : bool
        Its predicted length is the client's own word: it ranks the request, and says nothing of our predictions.
    max_new_tokens : int or None
        The client's limit.
    runs_to_limit : bool
        Nothing but the limit ends it (it ignores the end token): its length is known exactly.
    resumable : bool
        It can go on exactly where it was: else nobody takes its slot.
    ending : bool
        It is being aborted, and ends as soon as it is looked at: it waits for nobody, and nobody takes its slot.
    priority : int
        The client's own; higher goes first, before anything predicted.
    cached_tokens : int
        Context tokens whose KV entries exist already: a shared prefix, or what a preemption left in the cache.
    true_steps : int or None
        Verify steps it will really take: for the clairvoyant reference only.
    generated, steps : int
        Tokens produced and verify steps made (attained service).
    preemptions, recomputed_tokens : int
        How often it lost its slot, and KV entries computed again for that reason.
    refinements : tuple of Refinement
        What corrected its predicted length since its answer began, the last one in force.
    running : bool
    waiting_since : int
        Round in which it (last) began to wait.
    batch : bool
        Its client is in no hurry.
    born : float
        When it arrived, as an order counts that looks at waiting.
    queue : int
        Queue, 0 the highest.
    perceived_service : float
        Perceived remaining service in verify steps when its place was last computed.
    patience : int
        Rounds that it may still wait, all its waits together, before it is overdue.
    deadline : int
        Round from which it is overdue, if it waits.
    key : tuple
        Its place among the others; kept by the policy.
    victim_rank : tuple
        How readily it gives its slot away, the most ready highest; kept by policies that preempt.
    """

    arrival: int
    prompt_tokens: int
    posterior: AcceptancePosterior
    prediction: Prediction | None = None
    max_new_tokens: int | None = None
    runs_to_limit: bool = False
    resumable: bool = True
    ending: bool = False
    priority: int = 0
    cached_tokens: int = 0
    true_steps: int | None = None
    generated: int = 0
    steps: int = 0
    preemptions: int = 0
    recomputed_tokens: int = 0
    refinements: tuple[Refinement, ...] = ()
    running: bool = False
    waiting_since: int = 0
    batch: bool = False
    born: float = 0.0
    queue: int = 0
    perceived_service: float = 0.0
    patience: int = 0
    deadline: int = 0
    overdue: bool = False
    learns: bool = True
    hinted: bool = False
    risk_bucket: int = -1
    predicted_steps: float = 0.0
    key: Key = field(default=(0.0, 0.0, 0.0, 0))
    victim_rank: VictimRank = field(default=(0.0, 0.0, 0))

    @property
    def context_tokens(self) -> int:
        """Tokens whose KV entries it needs to go on: prompt and output so far."""
        return self.prompt_tokens + self.generated

    @property
    def tier(self) -> float:
        """What goes before anything else in an order, lowest first: who ends at once, then the client's priority."""
        return -inf if self.ending else -self.priority

    @property
    def limit_left(self) -> int:
        """Tokens that it may still produce under its limit, which must be known."""
        assert self.max_new_tokens is not None
        return max(self.max_new_tokens - self.generated, 0)

    @property
    def cut(self) -> bool:
        """Whether it has produced all that its limit allows."""
        return self.max_new_tokens is not None and self.generated >= self.max_new_tokens

    @property
    def prefill_tokens(self) -> int:
        """Tokens to compute before its next verify step, if it waits; 0 while it runs."""
        return 0 if self.running else max(self.context_tokens - self.cached_tokens, 0)

    def on_step(self, k: int, n: int, tokens: int) -> None:
        """One verify step accepted ``k`` of ``n`` drafts and emitted ``tokens`` (fewer than k + 1 at the end)."""
        self.steps += 1
        self.generated += tokens
        if self.learns:
            self.posterior.update(k, n)

    def on_refine(self, refinement: Refinement) -> None:
        """Its answer so far tells more of its length than was predicted."""
        self.refinements = (*self.refinements, refinement)

    def on_admit(self) -> None:
        """It got a slot: what was not cached is computed (again)."""
        if self.preemptions:
            self.recomputed_tokens += self.prefill_tokens
        self.running = True

    def on_preempt(self, cached_tokens: int, now: int) -> None:
        """It lost its slot in round ``now``; the KV entries of ``cached_tokens`` context tokens remain."""
        self.running = False
        self.preemptions += 1
        self.cached_tokens = min(cached_tokens, self.context_tokens)
        self.waiting_since = now


def new_request(
    arrival: int,
    prompt_tokens: int,
    *,
    settings: Settings | None = None,
    prediction: Prediction | None = None,
    hinted: bool = False,
    batch: bool = False,
    max_new_tokens: int | None = None,
    runs_to_limit: bool = False,
    priority: int = 0,
    cached_tokens: int = 0,
    max_correct_drafts: int | None = None,
    true_steps: int | None = None,
) -> RequestState:
    """Return the state of a request that has just arrived.

    Parameters
    ----------
    settings : Settings, optional
        Say which parts of the prediction are believed, and hold the prior of requests without one.
    max_correct_drafts : int, optional
        The most drafts that a verify step can accept, where known.

    Raises
    ------
    ValueError
        When a count is negative, or a request is to run to a limit that it does not have.
    """
    if runs_to_limit and max_new_tokens is None:
        raise ValueError("a request that runs to its limit needs max_new_tokens")
    if prompt_tokens < 0 or cached_tokens < 0 or (max_new_tokens is not None and max_new_tokens < 0):
        raise ValueError("prompt_tokens, cached_tokens and max_new_tokens must not be negative")
    settings = settings or Settings()
    mean, strength = settings.accept_length, settings.accept_strength
    if prediction is not None and settings.use_acceptance and settings.seeded:
        mean, strength = prediction.accept_length, prediction.accept_strength
    return RequestState(
        arrival=arrival,
        prompt_tokens=prompt_tokens,
        posterior=make_posterior(mean, strength, settings.posterior, max_correct_drafts),
        prediction=prediction,
        hinted=hinted,
        batch=batch,
        max_new_tokens=max_new_tokens,
        runs_to_limit=runs_to_limit,
        priority=priority,
        cached_tokens=min(cached_tokens, prompt_tokens),
        true_steps=true_steps,
        learns=settings.use_posterior,
    )
