"""Service: what a verify step, a prefill and a recomputation cost.

The unit of scheduling is the verify step: every running request gets one per decode iteration, and the batch shares
its time τ(batch) = n·T_ssm(batch) + T_llm(batch) (LAPS-SD, section 3).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated

from laps_sd.declared import Setting, check

#: Beyond this a second (or a token) is a slip, and clocks overflow.
_LARGEST = 1_000_000_000
#: Verify steps shorter than this are a slip too.
SHORTEST_S = 1e-9


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds that the engine spends; all parameters are at least 0, and a step takes time in every batch.

    Raises
    ------
    ValueError
        Names the parameter and its range.
    """

    step_s: Annotated[
        float,
        Setting(
            "One verify step of a batch that fits under the knee: n passes of the draft model and one verification.",
            "seconds",
            low=0,
            high=_LARGEST,
        ),
    ] = 1.0
    step_s_per_request: Annotated[
        float,
        Setting("What each running request beyond free_requests adds to a step.", "seconds", low=0, high=_LARGEST),
    ] = 0.0
    free_requests: Annotated[
        int,
        Setting(
            "The knee: up to so many requests the step is bound by reading weights and a further request is free.",
            "requests",
            low=0,
            high=_LARGEST,
        ),
    ] = 0
    prefill_s: Annotated[float, Setting("Fixed cost of one prefill batch.", "seconds", low=0, high=_LARGEST)] = 0.0
    prefill_s_per_token: Annotated[
        float, Setting("Cost of each prompt (or recomputed) token.", "seconds", low=0, high=_LARGEST)
    ] = 0.0
    plain_step_s: Annotated[
        float | None,
        Setting(
            "One step of plain decoding, one token without drafts; null: not known.", "seconds", low=0, high=_LARGEST
        ),
    ] = None
    plain_step_s_per_request: Annotated[
        float | None,
        Setting("What each running request beyond free_requests adds to it.", "seconds", low=0, high=_LARGEST),
    ] = None

    def __post_init__(self) -> None:
        try:
            check(self)
        except ValueError as error:
            raise ValueError(f"cost model: {error}") from error
        # Under the knee, too: a step of no time would end before it began.
        if self.tau(1) < SHORTEST_S:
            raise ValueError(f"cost model: a verify step must take at least {SHORTEST_S:g} s, also of one request")
        plain = self.plain_tau(1)
        if plain is not None and plain < SHORTEST_S:
            raise ValueError(f"cost model: a plain decode step must take at least {SHORTEST_S:g} s")

    @classmethod
    def unit(cls) -> CostModel:
        """A step costs 1 second whatever the batch; prefill and preemption cost nothing."""
        return cls()

    @classmethod
    def from_json(cls, text: str) -> CostModel:
        """Read what ``laps-sd simulate --fit-cost-model`` writes, or the model alone; raise ValueError otherwise.

        A file must say what a step and a prefill cost: an empty one would say that prefill is free.
        """
        values = json.loads(text)
        values = values.get("model", values) if isinstance(values, dict) else values
        model = cls.from_dict(values)
        for key in ("step_s", "prefill_s", "prefill_s_per_token"):
            if key not in values:
                raise ValueError(f"cost model: {key} is missing")
        return model

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> CostModel:
        """Read what `to_dict` wrote; unknown keys and values that are not numbers raise ValueError."""
        known = {field.name for field in fields(cls)}
        if not isinstance(values, Mapping):
            raise ValueError(f"a cost model is an object of numbers, not {type(values).__name__}")
        for key, value in values.items():
            if key not in known:
                raise ValueError(f"cost model: unknown key {key!r}; known are {', '.join(sorted(known))}")
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
                raise ValueError(f"cost model: {key} must be a number, got {value!r}")
        return cls(**values)  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, float | None]:
        """Return plain JSON numbers."""
        return asdict(self)

    def tau(self, batch: int) -> float:
        """Seconds of one verify step of ``batch`` running requests."""
        return self.step_s + self.step_s_per_request * max(0, batch - self.free_requests)

    def plain_tau(self, batch: int) -> float | None:
        """Seconds of one plain decode step of ``batch`` running requests; None when not known."""
        if self.plain_step_s is None:
            return None
        return self.plain_step_s + (self.plain_step_s_per_request or 0.0) * max(0, batch - self.free_requests)

    def prefill(self, tokens: int) -> float:
        """Seconds of a prefill batch of ``tokens`` (0 for nothing); recomputing after preemption costs the same."""
        return self.prefill_s + self.prefill_s_per_token * tokens if tokens > 0 else 0.0


#: Machines to replay on, by name, beside ``unit`` and what was fitted to a trace.
#:
#: From published figures, not measured here. H100 SXM: 3.35 TB/s and 989 dense bf16 TFLOP/s (NVIDIA H100 data sheet);
#: Llama 3.1: 8.03 and 70.6 billion parameters, 32 and 80 layers, 8 KV heads of 128 (Grattafiori et al. 2024, table 3).
#: A step reads all weights at 70 % of the bandwidth, a prefill computes 2 FLOP per parameter and token at half of the
#: peak, and reads all weights whatever its size. Requests read 1,000 tokens of KV each.
COST_MODELS: dict[str, CostModel] = {
    # 8B on one: 16.1 GB in 6.9 ms, and 2.1 ms for five passes of an EAGLE draft; KV 131 MB a request.
    "gpu-small": CostModel(step_s=0.009, step_s_per_request=5.6e-5, prefill_s=0.0075, prefill_s_per_token=3.2e-5),
    # 70B on four: 141 GB in 15 ms, 160 all-reduces of 15 us, 2.6 ms for the draft; KV 328 MB a request.
    "gpu-large": CostModel(step_s=0.02, step_s_per_request=3.5e-5, prefill_s=0.0175, prefill_s_per_token=7.1e-5),
    # Round figures of a server whose host is slow beside its GPU: what the marks of the policy were set with.
    "gpu": CostModel(step_s=0.03, prefill_s=0.02, prefill_s_per_token=5e-5),
    # SmolLM2 135M on two CPU cores, fitted to the shipped n-gram trace; benchmarks/cost-model-cpu.json.
    "cpu": CostModel(step_s=0.7342796018387296, prefill_s=0.7821726683884666, prefill_s_per_token=0.003110195555873925),
}


class PrefillSteps:
    """What prefill costs in verify steps, the unit of a policy.

    Attributes
    ----------
    slots : int
        Requests that run together: every one of them stands still while a prefill runs.
    per_token, per_batch : float
        Verify steps that fit into the prefill of one token, and into the fixed part of a prefill.
    """

    def __init__(self, cost: CostModel, slots: int) -> None:
        self.set(cost, slots)

    def set(self, cost: CostModel, slots: int) -> None:
        """Take over other costs, for instance when they were measured."""
        self.slots = max(slots, 1)
        tau = cost.tau(self.slots)
        self.per_token = cost.prefill_s_per_token / tau
        self.per_batch = cost.prefill_s / tau

    def service(self, tokens: int) -> float:
        """Service of one request that the prefill of ``tokens`` takes, its fixed part left out: others share it."""
        return self.slots * self.per_token * tokens

    def stall(self, tokens: int) -> float:
        """Verify steps that each request loses while a prefill batch of ``tokens`` runs."""
        return self.per_batch + self.per_token * tokens
