"""Admission and preemption: a subclass of SGLang's ``PrefillAdder`` that asks our policy.

SGLang asks for a victim only when slots are full. When KV tokens are full it stops admitting before it would ask, so
`add_one_req` is overridden: preempt, then try once more.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from sglang.srt.managers.schedule_policy import AddReqResult

from laps_sd.serving.config import ServingConfig
from laps_sd.serving.scheduler_side import Reason, SchedulerSide

_keep_kv: ContextVar[bool] = ContextVar("laps_sd_keep_kv", default=False)


@contextmanager
def keeping_kv(keep: bool) -> Iterator[None]:
    """Requests released inside leave their KV in the radix cache, evictable, if ``keep``."""
    token = _keep_kv.set(keep)
    try:
        yield
    finally:
        _keep_kv.reset(token)


def kept() -> bool:
    """Whether the request that is being released keeps its KV."""
    return _keep_kv.get()


def adder_class(base: Any, side: SchedulerSide, config: ServingConfig, *, can_keep_kv: bool) -> Any:
    """Subclass of the installed ``PrefillAdder`` that admits and preempts by ``side``'s policy.

    Parameters
    ----------
    base : type
        SGLang's class, or another plugin's subclass of it.
    can_keep_kv : bool
        Whether the cache can hold an unfinished request (there is a radix cache, and no Mamba state).
    """
    keep = config.preemption.keep_kv and can_keep_kv

    class LapsPrefillAdder(base):  # type: ignore[misc]
        """One admission round."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._passed_over = 0
            super().__init__(*args, **kwargs)

        def add_one_req(self, req: Any, has_chunked_req: bool, truncation_align_size: int | None) -> Any:
            result = self._try(req, has_chunked_req, truncation_align_size)
            if result is AddReqResult.NO_TOKEN and not self._is_in(req) and config.preemption.when_kv_full:
                for victim in self._victims_for_tokens(req):
                    self._take_slot(victim, "kv")
                    result = self._try(req, has_chunked_req, truncation_align_size)
                    if result is not AddReqResult.NO_TOKEN or self._is_in(req):
                        break
            if result is AddReqResult.NO_TOKEN and not self._is_in(req) and self._may_pass(req):
                self._passed_over += 1
                return AddReqResult.CONTINUE  # SGLang goes on with the next request; this one stays in the queue
            return result

        def preempt_to_schedule(self, req: Any) -> bool:
            if not config.preemption.enabled:
                return False
            victim = side.victim(req, self._preemptible())
            if victim is None:
                return False
            self._take_slot(victim, "slots")
            return True

        def _get_running_request_total_token_offset(self, req: Any) -> float:
            stock: float = super()._get_running_request_total_token_offset(req)
            if config.admission.reserve == "sglang" or req.laps_sd.carried.prediction is None:
                return stock
            most: int = max(req.sampling_params.max_new_tokens - len(req.output_ids), 0)
            return min(side.reserve_tokens(req), most)

        def _try(self, req: Any, has_chunked_req: bool, truncation_align_size: int | None) -> Any:
            result = super().add_one_req(req, has_chunked_req, truncation_align_size)
            if self._is_in(req):
                side.on_admit(req)
            return result

        def _is_in(self, req: Any) -> bool:
            return bool(self.can_run_list) and self.can_run_list[-1] is req

        def _may_pass(self, req: Any) -> bool:
            # A Mamba slot that SGLang matched for a request it then rejects is freed only when the round ends there.
            if self._passed_over >= config.admission.pass_over or self.tree_cache.supports_mamba():
                return False
            return self.budget_state() is AddReqResult.CONTINUE and side.may_pass(req)

        def _preemptible(self) -> list[Any]:
            # A finished request may still be in the batch with its KV freed: taking it would free that twice.
            # Beams, sessions and embedded inputs cannot resume where they were.
            return [
                r
                for r in self.running_batch.reqs
                if not r.finished() and r.beam_group is None and r.session is None and r.input_embeds is None
            ]

        def _victims_for_tokens(self, req: Any) -> list[Any]:
            """Victims that together make room for ``req``, the first to go first; none if they cannot."""
            if not config.preemption.enabled:
                return []
            output = max(req.sampling_params.max_new_tokens - len(req.output_ids), 0)
            missing = len(req.full_untruncated_fill_ids) - req.prefix_len + output - self.rem_total_tokens
            left, victims = self._preemptible(), []
            while missing >= 0 and (victim := side.victim(req, left)) is not None:
                left.remove(victim)
                victims.append(victim)
                missing -= self._get_running_request_total_token_offset(victim) + victim.seqlen
            return victims if missing < 0 else []

        def _take_slot(self, victim: Any, reason: Reason) -> None:
            batch = self.running_batch
            index, count = batch.reqs.index(victim), len(batch.reqs)
            self.memory_budget.total_offset -= self._get_running_request_total_token_offset(victim)
            with keeping_kv(keep):
                batch.release_req(index, count - 1)
            batch.filter_batch(keep_indices=[i for i in range(count) if i != index])
            self.preempt_list.append(victim)
            side.on_preempt(victim, victim.seqlen - 1 if keep else 0, reason)

    return LapsPrefillAdder
