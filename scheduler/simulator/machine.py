"""What a simulation runs on."""

from __future__ import annotations

from dataclasses import dataclass, field

from laps_sd.scheduler.service import CostModel
from laps_sd.scheduler.simulator.workload import ReplayRequest


@dataclass(frozen=True, slots=True)
class Machine:
    """What the requests run on.

    Attributes
    ----------
    slots : int
        Requests that run together at most.
    cost : CostModel
        Seconds of verify steps and prefills.
    kv_tokens : int, optional
        KV-cache capacity in tokens; None: never short.
    chunk_tokens : int
        The most tokens that one prefill iteration computes (SGLang's ``--chunked-prefill-size``).
    keep_kv : bool
        Whether what a preempted request generated stays in the cache, evictable, or only its prompt does.
    """

    slots: int = 16
    cost: CostModel = field(default_factory=CostModel.unit)
    kv_tokens: int | None = None
    chunk_tokens: int = 8192
    keep_kv: bool = True

    def __post_init__(self) -> None:
        if self.slots < 1 or self.chunk_tokens < 1 or (self.kv_tokens is not None and self.kv_tokens < 1):
            raise ValueError("slots, chunk_tokens and kv_tokens must be at least 1")

    def service_s(self, request: ReplayRequest) -> float:
        """Seconds that the request takes when it has the machine to itself."""
        full, rest = divmod(request.prompt_tokens, self.chunk_tokens)
        prefill = full * self.cost.prefill(self.chunk_tokens) + self.cost.prefill(rest)
        return prefill + request.steps * self.cost.tau(1)
