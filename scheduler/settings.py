"""Every constant of the ``laps-sd`` policy, by name, with the unit it is measured in."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from laps_sd.scheduler.posterior.base import PosteriorSettings

Index = Literal["remaining", "gittins", "attained"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Constants of the multi-level queues, of preemption and of fairness.

    Queues (LAPS-SD, Algorithm 1; the paper names no numbers, these are ours)

    Attributes
    ----------
    index : {"remaining", "gittins", "attained"}
        The service that places a request in a queue: expected remaining perceived service, the Gittins index of its
        distribution, or attained service as in the paper. In verify steps.
    seeded : bool
        Requests start in the queue of their perceived service, and acceptance is predicted from the prompt. False:
        all start in the highest queue, and attained service places them until their acceptance is stable.
    first_threshold : float
        q0, the most service (verify steps) in the highest queue.
    factor : float
        f > 1; queue k holds service up to q0 · f^k.
    levels : int
        Number of queues; the lowest has no upper bound.
    stability : float
        A request is perceptible once the 80 % interval of its accept length is at most this wide, relative to its mean.
    use_length, use_acceptance : bool
        Believe the predicted length, the predicted acceptance. Off for ablations.
    use_posterior : bool
        Learn a request's acceptance from its verify steps.
    accept_length, accept_strength : float
        Prior of requests without a prediction: tokens per verify step, and its weight in steps.

    Preemption

    preemption : bool
        False: running requests keep their slots.
    margin, blind_margin : float
        Hysteresis: a candidate's perceived service counts this many times when it asks for a running one's slot; the
        second where service is not predicted, or predictions are not trusted.
    recompute_weight : float
        How often the prefill that brings a victim back counts, for each slot and each waiting request: nobody moves
        meanwhile, and whoever comes before the machine has caught up is late too. 0: as if it cost nothing.
    protect_steps : float
        A request expected to end within so many verify steps is not preempted.
    max_preemptions : int
        A request that was preempted so often keeps its slot to the end.

    Fairness

    patience : float
        A request waits at most this many times its expected service (in rounds), then only requests that are older in
        that sense go before it.
    patience_floor : float
        Expected service below this (verify steps) counts as this: short requests are not urgent at once.

    Trust

    trust : bool
        Lean less on predictions that finished requests proved wrong.
    trust_low, trust_high : float
        Correlation of log predicted and log real steps at which predictions count nothing, and fully.
    most_trust : float
        Weight of a trusted prediction at arrival; the rest is the population's, and grows as a request outlives what
        was predicted for it: a predicted tail is always too light for some request.
    trust_prior : float
        Weight, in finished requests, of the belief that the predictions are good.
    memory : int
        Finished requests that are remembered, about.

    Work

    refresh_steps : int
        A running request's place is computed anew after so many verify steps.
    kv_quantile : float
        Admission reserves KV tokens for this quantile of the remaining length.
    posterior : PosteriorSettings
        Model of the acceptance posterior.

    Raises
    ------
    ValueError
        Names the setting and its bounds.
    """

    index: Index = "gittins"
    seeded: bool = True
    first_threshold: float = 4.0
    factor: float = 1.15
    levels: int = 64
    stability: float = 0.5
    use_length: bool = True
    use_acceptance: bool = True
    use_posterior: bool = True
    accept_length: float = 2.0
    accept_strength: float = 8.0
    preemption: bool = True
    margin: float = 1.1
    blind_margin: float = 1.15
    recompute_weight: float = 4.0
    protect_steps: float = 4.0
    max_preemptions: int = 16
    patience: float = 100.0
    patience_floor: float = 16.0
    trust: bool = True
    trust_low: float = 0.15
    trust_high: float = 0.35
    most_trust: float = 0.95
    trust_prior: float = 16.0
    memory: int = 512
    refresh_steps: int = 8
    kv_quantile: float = 0.8
    posterior: PosteriorSettings = field(default_factory=PosteriorSettings)

    def __post_init__(self) -> None:
        if self.index not in ("remaining", "gittins", "attained"):
            raise ValueError(f"index must be remaining, gittins or attained, got {self.index!r}")
        for name, (low, high) in _BOUNDS.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} must lie in [{low}, {high}], got {value}")
        if self.trust_low >= self.trust_high:
            raise ValueError(f"trust_low must be below trust_high, got {self.trust_low} and {self.trust_high}")

    @classmethod
    def paper(cls) -> Settings:
        """Return the paper-faithful preset: the defaults but for `PAPER`."""
        return cls(**PAPER)

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all settings."""
        return [f.name for f in fields(cls)]


#: What the paper-faithful preset sets: unseeded, all start in the highest queue, queues over attained service. What the
#: paper does not state (thresholds, number of queues, stability test) keeps a sensible value.
PAPER: dict[str, Any] = {
    "index": "attained",
    "seeded": False,
    "first_threshold": 16.0,
    "factor": 2.0,
    "levels": 8,
    "margin": 1.0,
    "blind_margin": 1.0,
    "trust": False,
    "protect_steps": 0.0,
    "max_preemptions": 1_000_000,
    "patience": 1e9,
}

#: Named configurations, written ``laps-sd:NAME``, and what each changes of the settings at hand.
PRESETS: dict[str, dict[str, Any]] = {
    "paper": PAPER,
    "length-only": {"use_acceptance": False, "use_posterior": False},
    "acceptance-only": {"use_length": False},
    "unseeded": {"seeded": False},
    "no-posterior": {"use_posterior": False},
    "remaining": {"index": "remaining"},
    "no-trust": {"trust": False},
    "no-preemption": {"preemption": False},
}

_BOUNDS: dict[str, tuple[float, float]] = {
    "first_threshold": (0.01, 1e6),
    "factor": (1.001, 100),
    "levels": (1, 10_000),
    "stability": (0, 10),
    "accept_length": (1, 1e4),
    "accept_strength": (1e-3, 1e6),
    "margin": (1, 100),
    "blind_margin": (1, 100),
    "recompute_weight": (0, 1e6),
    "protect_steps": (0, 1e6),
    "max_preemptions": (0, 1_000_000),
    "patience": (0, 1e12),
    "patience_floor": (0.01, 1e9),
    "trust_low": (-1, 1),
    "trust_high": (-1, 1),
    "most_trust": (0, 1),
    "trust_prior": (0, 1e6),
    "memory": (8, 10_000_000),
    "refresh_steps": (1, 10_000),
    "kv_quantile": (0, 0.999),
}
