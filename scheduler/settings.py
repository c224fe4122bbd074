"""Every constant of the ``laps-sd`` policy, by name, with its meaning, unit and range.

LAPS-SD, Algorithm 1, names no numbers; these are ours. What is not here is a documented numerical constant beside the
code that it concerns: a resolution, the size of a cache, or a bound on the cost of a round that no order depends on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

from laps_sd.declared import Setting, check
from laps_sd.scheduler.posterior.settings import PosteriorSettings

Index = Literal["remaining", "gittins", "attained"]

#: Service is counted in these.
STEPS = "verify steps"


@dataclass(frozen=True, slots=True)
class Settings:
    """Constants of the multi-level queues, of preemption, fairness, trust and the statistics of finished requests.

    Each is declared with its meaning, unit and range; ``laps-sd config show`` prints them all.

    Raises
    ------
    ValueError
        Names the setting and its range.
    """

    # --- queues ------------------------------------------------------------------------------------------------
    index: Annotated[
        Index,
        Setting(
            "The service that places a request in a queue: expected remaining perceived service, the Gittins index of "
            "its distribution, or attained service as in the paper. In verify steps."
        ),
    ] = "gittins"
    seeded: Annotated[
        bool,
        Setting(
            "Requests start in the queue of their perceived service, and acceptance is predicted from the prompt. "
            "false: all start in the highest queue, and attained service places them until their acceptance is stable."
        ),
    ] = True
    first_threshold: Annotated[
        float, Setting("q0, the most service in the highest queue.", STEPS, low=0.01, high=1_000_000)
    ] = 4.0
    factor: Annotated[float, Setting("f > 1; queue k holds service up to q0 · f^k.", low=1.001, high=100)] = 1.15
    levels: Annotated[
        int, Setting("Number of queues; the lowest has no upper bound.", "queues", low=1, high=10_000)
    ] = 64
    stability: Annotated[
        float,
        Setting(
            "A request is perceptible once the 80 % interval of its accept length is at most this wide, relative to "
            "its mean.",
            low=0,
            high=10,
        ),
    ] = 0.5
    use_length: Annotated[bool, Setting("Believe the predicted length. Off for ablations.")] = True
    refine: Annotated[
        bool, Setting("Believe what an answer has said so far more than the length predicted at its arrival.")
    ] = True
    use_acceptance: Annotated[bool, Setting("Believe the predicted acceptance. Off for ablations.")] = True
    use_posterior: Annotated[bool, Setting("Learn a request's acceptance from its verify steps.")] = True

    # --- before anything is known ------------------------------------------------------------------------------
    accept_length: Annotated[
        float,
        Setting("Prior of requests without a prediction: accept length.", "tokens per verify step", low=1, high=10_000),
    ] = 2.0
    accept_strength: Annotated[float, Setting("Weight of that prior.", STEPS, low=0.001, high=1_000_000)] = 8.0
    output_length: Annotated[
        float,
        Setting(
            "Mean output length that is assumed before requests finished. Memoryless: without predictions requests are "
            "then served first come, first served.",
            "tokens",
            low=1,
            high=1_000_000_000,
        ),
    ] = 256.0
    output_strength: Annotated[
        float, Setting("Weight of that assumption, wherever it is used.", "finished requests", low=0.01, high=1_000_000)
    ] = 4.0

    weigh_acceptance: Annotated[
        bool,
        Setting(
            "Count a predicted acceptance for as much as it told about finished requests, those that were predicted "
            "long above all: where it is wrong about these it costs most. Only where a prefill launch costs something. "
            "false: count it fully."
        ),
    ] = True

    # --- mean against tail -------------------------------------------------------------------------------------
    tail: Annotated[
        float,
        Setting(
            "How much of the mean is spent on the tail: perceived service shrinks by the factor e in the time that the "
            "queue takes to drain, divided by this. 0: the least mean; 0.12: a much shorter tail for some percent of "
            "the mean; 100: first come, first served. "
            "It counts with several slots, where a prefill launch costs something.",
            low=0,
            high=1_000_000,
        ),
    ] = 0.01
    batch_delay: Annotated[
        float,
        Setting(
            "A request whose client calls it `batch` is placed as if it had arrived so much later than an interactive "
            "one. It counts where tail is above 0.",
            "rounds",
            low=0,
            high=1_000_000_000,
        ),
    ] = 1000.0

    # --- prefill launches --------------------------------------------------------------------------------------
    ride: Annotated[
        bool,
        Setting(
            "Charge a preemption no launch of its own where a prefill runs anyway: the swap rides in it, and so will "
            "the victim's return."
        ),
    ] = True
    gather: Annotated[
        bool,
        Setting(
            "While requests wait, leave freed slots empty until so many are free that filling them together costs less "
            "than a prefill launch for each."
        ),
    ] = True

    # --- preemption --------------------------------------------------------------------------------------------
    preemption: Annotated[bool, Setting("false: running requests keep their slots.")] = True
    margin: Annotated[
        float,
        Setting(
            "Hysteresis: a candidate's perceived service counts this many times when it asks for a running one's slot.",
            low=1,
            high=100,
        ),
    ] = 1.1
    blind_margin: Annotated[
        float, Setting("The same where service is not predicted, or predictions are not trusted.", low=1, high=100)
    ] = 1.15
    recompute_weight: Annotated[
        float,
        Setting(
            "How often the prefill that brings a victim back counts, for each slot and each waiting request: nobody "
            "moves meanwhile, and whoever comes before the machine has caught up is late too. 0: as if it were free.",
            low=0,
            high=1_000_000,
        ),
    ] = 4.0
    protect_steps: Annotated[
        float, Setting("A request expected to end within so much is not preempted.", STEPS, low=0, high=1_000_000)
    ] = 4.0
    max_preemptions: Annotated[
        int,
        Setting("A request that was preempted so often keeps its slot to the end.", "times", low=0, high=1_000_000),
    ] = 16
    victims_considered: Annotated[
        int,
        Setting(
            "Running requests that are looked at, those from which most is gained first, before a candidate is told to "
            "wait.",
            "requests",
            low=1,
            high=100_000,
        ),
    ] = 32
    victims_estimated: Annotated[
        int,
        Setting(
            "Of these, the affordable ones whose perceived service is computed anew for it.",
            "requests",
            low=1,
            high=100_000,
        ),
    ] = 4

    # --- fairness ----------------------------------------------------------------------------------------------
    patience: Annotated[
        float,
        Setting(
            "A request waits at most this many times its expected service at arrival (in rounds, all its waits "
            "together), then only requests that are older in that sense go before it.",
            low=0,
            high=1_000_000_000_000,
        ),
    ] = 100.0
    patience_floor: Annotated[
        float,
        Setting(
            "Expected service below this counts as this: short requests are not urgent at once.",
            STEPS,
            low=0.01,
            high=1_000_000_000,
        ),
    ] = 16.0

    patience_before_priority: Annotated[
        bool,
        Setting(
            "Whoever has waited so long goes before every client priority and keeps its slot from it, so that nobody "
            "starves under others' priority. false: only before those of its own priority."
        ),
    ] = False

    # --- trust in predictions, and what finished requests teach ----------------------------------------------------
    trust: Annotated[bool, Setting("Lean less on predictions that finished requests proved wrong.")] = True
    trust_low: Annotated[
        float,
        Setting("Correlation of log predicted and log real steps at which predictions count nothing.", low=-1, high=1),
    ] = 0.15
    trust_high: Annotated[float, Setting("And at which they count fully.", low=-1, high=1)] = 0.35
    most_trust: Annotated[
        float,
        Setting(
            "Weight of a trusted prediction at arrival; the rest is the population's, and grows as a request outlives "
            "what was predicted for it: a predicted tail is always too light for some request.",
            low=0,
            high=1,
        ),
    ] = 0.95
    lean_trust: Annotated[
        float,
        Setting(
            "Trust below which a review of the statistics places predicted requests anew as well; above it the "
            "population hardly counts for them, and only a change of trust does.",
            low=0,
            high=1,
        ),
    ] = 0.5
    trust_prior: Annotated[
        float,
        Setting("Weight of the belief that the predictions are good.", "finished requests", low=0, high=1_000_000),
    ] = 16.0
    trust_prior_correlation: Annotated[
        float, Setting("The correlation that this belief expects, of a predictor worth deploying.", low=-1, high=1)
    ] = 0.5
    trust_spread: Annotated[
        float,
        Setting(
            "Standard deviation of log predicted steps from which every finished request counts fully as evidence; "
            "predictions that were all alike say little about how well others are ranked.",
            low=0.001,
            high=100,
        ),
    ] = 0.5
    own_steps: Annotated[
        float,
        Setting(
            "Steps after which a request's own acceptance counts as much as that of all requests, where its prior is "
            "not believed.",
            STEPS,
            low=0.001,
            high=1_000_000,
        ),
    ] = 16.0
    memory: Annotated[
        int, Setting("Finished requests that are remembered, about.", "finished requests", low=8, high=10_000_000)
    ] = 512
    review_every: Annotated[
        int,
        Setting(
            "Finished requests between two reviews of the statistics of all requests, at first; later an eighth of "
            "those seen, at most the memory.",
            "finished requests",
            low=1,
            high=10_000_000,
        ),
    ] = 16

    # --- work, and KV memory -------------------------------------------------------------------------------------
    places_per_round: Annotated[
        int,
        Setting(
            "Waiting requests whose place is computed anew in one round after a review of the statistics; more where "
            "more are due than there are slots.",
            "requests",
            low=1,
            high=1_000_000,
        ),
    ] = 16
    refresh_steps: Annotated[
        int, Setting("A running request's place is computed anew after so many.", STEPS, low=1, high=10_000)
    ] = 8
    kv_quantile: Annotated[
        float, Setting("Admission reserves KV tokens for this quantile of the remaining length.", low=0, high=0.999)
    ] = 0.8
    posterior: Annotated[PosteriorSettings, Setting("Model of the acceptance posterior.")] = field(
        default_factory=PosteriorSettings
    )

    def __post_init__(self) -> None:
        check(self)
        if self.trust_low >= self.trust_high:
            raise ValueError(f"trust_low must be below trust_high, got {self.trust_low} and {self.trust_high}")

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all settings."""
        return [f.name for f in fields(cls)]


#: Named configurations, written ``laps-sd:NAME``, and what each changes of the settings at hand.
PRESETS: dict[str, dict[str, Any]] = {
    # Faithful to the paper: unseeded, all start in the highest queue, queues over attained service. What the paper
    # does not state (thresholds, number of queues, stability test) keeps a sensible value.
    "paper": {
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
        "weigh_acceptance": False,
        "tail": 0.0,
        "ride": False,
        "gather": False,
    },
    "length-only": {"use_acceptance": False, "use_posterior": False},
    "acceptance-only": {"use_length": False},
    "unseeded": {"seeded": False},
    "no-posterior": {"use_posterior": False},
    "remaining": {"index": "remaining"},
    "no-trust": {"trust": False},
    "no-preemption": {"preemption": False},
    "no-ride": {"ride": False},
    "no-gather": {"gather": False},
    "no-boost": {"tail": 0.0},
    "no-refinement": {"refine": False},
    "no-weighing": {"weigh_acceptance": False},
    # Not an ablation: the operator's choice of a short tail.
    "tail": {"tail": 0.12},
}
