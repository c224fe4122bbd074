"""Admission and preemption: a subclass of SGLang's ``PrefillAdder`` that asks our policy.

SGLang asks for a victim only when slots are full, before it knows which prefix of the candidate is cached. When KV
tokens are full it stops admitting before it would ask. So `preempt_to_schedule` only names who would give its slot, and
`add_one_req` takes slots: when the candidate is in, or when those that give way make room for it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sglang.srt.managers.schedule_policy import AddReqResult
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

from laps_sd.serving.config import ServingConfig
from laps_sd.serving.engine import Req
from laps_sd.serving.requests.scheduler_side import PreemptionReason, SchedulerSide

if TYPE_CHECKING:
    from laps_sd.serving.engine import PrefillAdder as _Base
else:
    _Base = object  # the real base is known at run time only: SGLang's class, or another plugin's subclass of it


@dataclass(slots=True)
class Admission:
    """What all admission rounds of one scheduler process share.

    Attributes
    ----------
    side : SchedulerSide
        Whose policy decides.
    config : ServingConfig
        The sections ``preemption`` and ``admission`` count.
    can_keep_kv : bool
        Whether the cache can hold an unfinished request (there is a radix cache, and no Mamba state).
    releasing : bool
        A preempted request is being released right now, and its KV is to stay.
    """

    side: SchedulerSide
    config: ServingConfig
    can_keep_kv: bool
    releasing: bool = False

    @property
    def keeps_kv(self) -> bool:
        """Whether a preempted request's KV stays in the radix cache, evictable."""
        return self.config.preemption.keep_kv and self.can_keep_kv

    @contextmanager
    def release(self) -> Iterator[None]:
        """Leave the KV of requests that are released inside in the radix cache, where it is to stay."""
        self.releasing = self.keeps_kv
        try:
            yield
        finally:
            self.releasing = False

    def may_preempt(self, req: Req) -> bool:
        """Whether others may lose their slots to ``req``."""
        # A beam search needs a slot for each beam, of which SGLang asks for one: one victim would not do.
        return self.config.preemption.enabled and req.beam_group is None


class PolicyAdder(_Base):
    """One admission round by our policy; `adder_class` joins it with the installed ``PrefillAdder``."""

    admission: Admission

    _passed_over = 0
    _offer: tuple[Req, Req] | None = None  # a candidate, and who would give its slot to it

    def add_one_req(self, req: Req, has_chunked_req: bool, truncation_align_size: int | None) -> object:
        """Admit ``req`` if it fits, if need be in place of others; without room let lighter ones be tried."""
        giver = self._offer[1] if self._offer is not None and self._offer[0] is req else None
        self._offer = None
        retry = partial(self._try, req, has_chunked_req, truncation_align_size)
        result = retry()
        if self._is_in(req):
            if giver is not None:
                self._take_slot(giver, "slots")
        elif result is AddReqResult.NO_TOKEN and self.admission.may_preempt(req):
            result = self._make_room(req, giver, retry)
        if result is AddReqResult.NO_TOKEN and not self._is_in(req) and self._may_pass(req):
            self._passed_over += 1
            self.req_states = None  # it is counted there already
            return AddReqResult.CONTINUE  # SGLang goes on with the next request; this one stays in the queue
        return result

    def preempt_to_schedule(self, req: Req) -> bool:
        """Name who would give its slot; whether the candidate fits is known later, and nobody loses a slot before."""
        admission = self.admission
        victim = admission.side.victim(req, self._preemptible()) if admission.may_preempt(req) else None
        self._offer = None if victim is None else (req, victim)
        return victim is not None

    def _get_running_request_total_token_offset(self, req: Req) -> float:
        stock = super()._get_running_request_total_token_offset(req)
        admission = self.admission
        if admission.config.admission.reserve == "sglang" or not admission.side.plans_by_prediction(req):
            return stock
        most = max(req.sampling_params.max_new_tokens - len(req.output_ids), 0)
        return min(admission.side.reserve_tokens(req), most)

    def _try(self, req: Req, has_chunked_req: bool, truncation_align_size: int | None) -> object:
        result = super().add_one_req(req, has_chunked_req, truncation_align_size)
        if self._is_in(req):
            self.admission.side.on_admit(req)
        return result

    def _is_in(self, req: Req) -> bool:
        return bool(self.can_run_list) and self.can_run_list[-1] is req

    def _may_pass(self, req: Req) -> bool:
        # A Mamba slot that SGLang matched for a request it then rejects is freed only when the round ends there.
        admission = self.admission
        if self._passed_over >= admission.config.admission.pass_over or self.tree_cache.supports_mamba():
            return False
        return self.budget_state() is AddReqResult.CONTINUE and admission.side.may_pass(req)

    def _preemptible(self) -> list[Req]:
        # A finished request may still be in the batch with its KV freed: taking it would free that twice.
        # Beams, sessions and embedded inputs cannot resume where they were.
        return [
            r
            for r in self.running_batch.reqs
            if not r.finished() and r.beam_group is None and r.session is None and r.input_embeds is None
        ]

    def _make_room(self, req: Req, giver: Req | None, retry: Callable[[], object]) -> object:
        """Take slots until ``req`` is in, or until those that may give way no longer suffice."""
        result: object = AddReqResult.NO_TOKEN
        with self._pinned(req):
            while result is AddReqResult.NO_TOKEN and not self._is_in(req):
                victims = self._victims(req, giver)
                if not victims:
                    break
                self._take_slot(victims[0], "kv" if giver is None else "slots")
                giver = None
                result = retry()
        return result

    @contextmanager
    def _pinned(self, req: Req) -> Iterator[None]:
        """Keep the cached prefix that SGLang matched for ``req``: releasing a victim evicts what is not locked.

        The budget then does not count this prefix as free either, as SGLang's own check does not.
        """
        with ExitStack() as pins:
            pins.enter_context(self._lock_node(req.last_node))
            if req.needs_host_load_back() and isinstance(self.tree_cache, UnifiedRadixCache):
                pins.enter_context(self._lock_node(req.best_match_node, lock_host=True))
            yield

    def _victims(self, req: Req, giver: Req | None) -> list[Req]:
        """Return requests that together make room for ``req``, ``giver`` of its slot first; none if they cannot."""
        missing = self._need(req) - self.rem_total_tokens
        left, victims = self._preemptible(), list[Req]()
        victim = giver
        while victim is not None or missing >= 0:
            if victim is None and self.admission.config.preemption.when_kv_full:
                victim = self.admission.side.victim(req, left)
            if victim is None:
                return []
            left.remove(victim)
            victims.append(victim)
            missing -= self._gain(victim, req, victims)
            victim = None
        return victims

    def _need(self, req: Req) -> int:
        """Tokens that SGLang wants to see free before it admits ``req``."""
        tokens = len(req.full_untruncated_fill_ids) - req.prefix_len + self._swa_new_tokens(req)
        tokens += self.per_req_token_overhead + self._request_slot_reserve_for_req(req)
        return tokens + int(self._mamba_gap_budget_for_req(req, include_host_hit=True))

    def _gain(self, victim: Req, req: Req, victims: Sequence[Req]) -> float:
        """Tokens that ``victim`` leaves: its reserve, and its KV without what somebody who stays shares."""
        others = [
            r.full_untruncated_fill_ids for r in (*self.running_batch.reqs, *self.can_run_list) if r not in victims
        ]
        others.append(req.full_untruncated_fill_ids[: req.prefix_len])
        held = victim.seqlen - 1  # the last token is not computed yet
        shared = min(longest_shared(victim.full_untruncated_fill_ids, others), held)
        return float(self._get_running_request_total_token_offset(victim) + held - shared)

    def _take_slot(self, victim: Req, reason: PreemptionReason) -> None:
        batch = self.running_batch
        index, count = batch.reqs.index(victim), len(batch.reqs)
        self.memory_budget.total_offset -= self._get_running_request_total_token_offset(victim)
        with self.admission.release():
            batch.release_req(index, count - 1)
        batch.filter_batch(keep_indices=[i for i in range(count) if i != index])
        batch.batch_is_full = False  # else the next candidate preempts although a slot may be free
        self.req_states = None  # SGLang's forecast without a radix cache: made anew from who is left
        self.preempt_list.append(victim)
        self.admission.side.on_preempt(victim, victim.seqlen - 1 if self.admission.keeps_kv else 0, reason)


def adder_class(base: type, admission: Admission) -> type:
    """Return the subclass of ``base`` that admits and preempts by our policy.

    Parameters
    ----------
    base : type
        SGLang's ``PrefillAdder``, or another plugin's subclass of it.
    admission : Admission
        What all rounds share.
    """
    return type("LapsPrefillAdder", (PolicyAdder, base), {"admission": admission})


def longest_shared(ids: Sequence[int], others: Iterable[Sequence[int]]) -> int:
    """Length of the longest prefix of ``ids`` that one of ``others`` has too; both arrays of one type.

    The length is found by halving: comparing two slices of arrays costs no Python step per token.
    """
    best = 0
    for other in others:
        most = min(len(ids), len(other))
        if best < most and ids[: best + 1] == other[: best + 1]:  # longer than the best so far: how much?
            low, high = best + 1, most
            while low < high:
                middle = (low + high + 1) // 2
                if ids[low:middle] == other[low:middle]:
                    low = middle
                else:
                    high = middle - 1
            best = low
    return best
