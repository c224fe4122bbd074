"""Service: what a verify step, a prefill and a recomputation cost.

The unit of scheduling is the verify step: every running request gets one per decode iteration, and the batch shares
its time τ(batch) = n·T_ssm(batch) + T_llm(batch) (LAPS-SD, section 3).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

#: Beyond this a second (or a token) is a slip, and clocks overflow.
_LARGEST = 1e9
#: Verify steps shorter than this are a slip too.
SHORTEST_S = 1e-9


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds that the engine spends; all parameters are at least 0, and a step takes time in every batch.

    Attributes
    ----------
    step_s : float
        One verify step of a batch that fits under the knee: n passes of the draft model and one verification.
    step_s_per_request : float
        What each running request beyond ``free_requests`` adds to a step.
    free_requests : int
        The knee: up to so many requests the step is bound by reading weights and a further request is free.
    prefill_s : float
        Fixed cost of one prefill batch.
    prefill_s_per_token : float
        Cost of each prompt (or recomputed) token.
    plain_step_s, plain_step_s_per_request : float or None
        The same for plain decoding, one token per step without drafts; None: not known.
    """

    step_s: float = 1.0
    step_s_per_request: float = 0.0
    free_requests: int = 0
    prefill_s: float = 0.0
    prefill_s_per_token: float = 0.0
    plain_step_s: float | None = None
    plain_step_s_per_request: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            if value is None or not 0 <= value <= _LARGEST:
                raise ValueError(f"cost model: {field.name} must be a number from 0 to {_LARGEST:g}, got {value}")
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

    def steps_per_prefill_token(self, batch: int = 1) -> float:
        """Verify steps that one prompt token costs: how a long prefill enters perceived service."""
        return self.prefill_s_per_token / self.tau(batch)
