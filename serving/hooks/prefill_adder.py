"""Admission and preemption: a subclass of SGLang's ``PrefillAdder`` that asks our policy.

SGLang asks for a victim only when slots are full, before it knows which prefix of the candidate is cached. When KV
tokens are full it stops admitting before it would ask. So `preempt_to_schedule` only names who would give its slot, and
`add_one_req` takes slots: when the candidate is in, or when those that give way make room for it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from sglang.srt.managers.schedule_policy import AddReqResult
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

from laps_sd.serving.config import ServingConfig
from laps_sd.serving.engine import Req
from laps_sd.serving.hooks.guard import FallBack
from laps_sd.serving.hooks.shared_kv import SharedKv, paths
from laps_sd.serving.requests.scheduler_side import PreemptionReason, SchedulerSide

_Answer = TypeVar("_Answer")

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
    fall_back : callable
        Told of a question that failed, by the name of SGLang's method in which it was asked.
    active : bool
        Whether the policy is asked at all; no longer once a hook has failed.
    releasing : bool
        A preempted request is being released right now, and its KV is to stay.
    """

    side: SchedulerSide
    config: ServingConfig
    can_keep_kv: bool
    fall_back: FallBack
    active: bool = True
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
        # A beam search needs a slot for each beam, of which SGLang asks for one: one victim would not do. And nobody
        # loses a slot to a request that is being aborted.
        return self.config.preemption.enabled and req.beam_group is None and req.to_finish is None


@dataclass(frozen=True, slots=True)
class Victim:
    """A running request that gives way.

    Attributes
    ----------
    req : Req
        Whom it is.
    reserve : float
        KV tokens that the budget of this round keeps for what it has still to produce.
    """

    req: Req
    reserve: float


class PolicyAdder(_Base):
    """One admission round by our policy; `adder_class` joins it with the installed ``PrefillAdder``.

    Questions to the policy are asked before anything is changed, and it is told of what was done afterwards: whatever
    it raises, a request that lost its slot is in SGLang's list of those to queue again, and its KV tokens are free.
    """

    admission: Admission

    _passed_over = 0
    _shared_kv: SharedKv | None = None
    _offer: tuple[Req, Victim] | None = None  # a candidate, and who would give its slot to it

    def add_one_req(self, req: Req, has_chunked_req: bool, truncation_align_size: int | None) -> object:
        """Admit ``req`` if it fits, if need be in place of others; without room let lighter ones be tried."""
        if not self.can_run_list and self._ask(self._gathers, req, otherwise=False):
            return AddReqResult.OTHER  # SGLang's loop ends without anybody, and decodes
        giver = self._offer[1] if self._offer is not None and self._offer[0] is req else None
        self._offer = None
        retry = partial(self._try, req, has_chunked_req, truncation_align_size)
        result = retry()
        if self._is_in(req):
            if giver is not None:
                self._take_slot(giver, "slots")
        elif result is AddReqResult.NO_TOKEN:
            result = self._make_room(req, giver, retry)
        if result is AddReqResult.NO_TOKEN and not self._is_in(req) and self._ask(self._may_pass, req, otherwise=False):
            self._passed_over += 1
            self.req_states = None  # it is counted there already
            return AddReqResult.CONTINUE  # SGLang goes on with the next request; this one stays in the queue
        return result

    def preempt_to_schedule(self, req: Req) -> bool:
        """Name who would give its slot; whether the candidate fits is known later, and nobody loses a slot before."""
        victim = self._ask(self._giver, req, otherwise=None)
        self._offer = None if victim is None else (req, victim)
        return victim is not None

    def _get_running_request_total_token_offset(self, req: Req) -> float:
        stock = super()._get_running_request_total_token_offset(req)
        admission = self.admission
        if not admission.active or admission.config.admission.reserve == "sglang":
            return stock
        try:
            if not admission.side.plans_by_prediction(req):
                return stock
            most = max(req.sampling_params.max_new_tokens - len(req.output_ids), 0)
            reserve = admission.side.reserve_tokens(req)
            if not reserve >= 0:  # also what is no number: admission would go beyond the KV pool
                raise ValueError(f"a reserve of {reserve} KV tokens")
            return min(reserve, most)
        except Exception as error:
            admission.fall_back("_get_running_request_total_token_offset", error)
            return stock

    def _ask(self, question: Callable[..., _Answer], *args: object, otherwise: _Answer) -> _Answer:
        """Ask what the policy decides, or tell it something; ``otherwise`` where it is asked no more."""
        if not self.admission.active:
            return otherwise
        try:
            return question(*args)
        except Exception as error:
            self.admission.fall_back("add_one_req", error)
            return otherwise

    def _gathers(self, req: Req) -> bool:
        """Whether the policy leaves free slots empty, so that more of them are filled by one prefill."""
        running = sum(not r.finished() for r in self.running_batch.reqs)
        return self.admission.side.gathers(req, running)

    def _giver(self, req: Req) -> Victim | None:
        if not self.admission.may_preempt(req):
            return None
        running = self._preemptible()
        victim = self.admission.side.victim(req, running, launching=bool(self.can_run_list))
        if victim is not None and victim not in running:
            raise ValueError("a victim that may not give way, or does not run")
        return self._as_victim(victim)

    def _as_victim(self, req: Req | None) -> Victim | None:
        return None if req is None else Victim(req, self._get_running_request_total_token_offset(req))

    def _try(self, req: Req, has_chunked_req: bool, truncation_align_size: int | None) -> object:
        result = super().add_one_req(req, has_chunked_req, truncation_align_size)
        if self._is_in(req):
            self._shared_kv = None
            self._ask(self.admission.side.on_admit, req, otherwise=None)
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
        return [r for r in self.running_batch.reqs if self.admission.side.may_lose_slot(r)]

    def _make_room(self, req: Req, giver: Victim | None, retry: Callable[[], object]) -> object:
        """Take slots until ``req`` is in, or until those that may give way no longer suffice."""
        result: object = AddReqResult.NO_TOKEN
        if not self._ask(self.admission.may_preempt, req, otherwise=False):
            return result
        with self._pinned(req):
            while result is AddReqResult.NO_TOKEN and not self._is_in(req):
                victims = self._ask(self._victims, req, giver, otherwise=list[Victim]())
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

    def _victims(self, req: Req, giver: Victim | None) -> list[Victim]:
        """Return requests that together make room for ``req``, ``giver`` of its slot first; none if they cannot."""
        missing = self._need(req) - self.rem_total_tokens
        left, victims = self._preemptible(), list[Victim]()
        stays: Set[int] = frozenset()
        released: Counter[int] = Counter()
        victim = giver
        while victim is not None or missing >= 0:
            if victim is None and self.admission.config.preemption.when_kv_full:
                victim = self._as_victim(self.admission.side.victim(req, left, launching=bool(self.can_run_list)))
            if victim is None:
                return []
            left.remove(victim.req)
            if not victims:
                stays = {node for node, _ in paths(self.tree_cache, [req])[0]}
            victims.append(victim)
            released.update(self._kv().nodes(victim.req))
            missing -= self._gain(victim, stays, released)
            victim = None
        return victims

    def _need(self, req: Req) -> int:
        """Tokens that SGLang wants to see free before it admits ``req``."""
        tokens = len(req.full_untruncated_fill_ids) - req.prefix_len + self._swa_new_tokens(req)
        tokens += self.per_req_token_overhead + self._request_slot_reserve_for_req(req)
        return tokens + int(self._mamba_gap_budget_for_req(req, include_host_hit=True))

    def _gain(self, victim: Victim, stays: Set[int], released: Mapping[int, int]) -> float:
        """Return the tokens that ``victim`` leaves: its reserve, and its KV without what somebody who stays shares."""
        gives: Req = victim.req
        held = gives.seqlen - 1  # the last token is not computed yet
        shared = min(self._kv().shared(gives, stays, released), held)
        return float(victim.reserve + held - shared)

    def _kv(self) -> SharedKv:
        """Return who holds which KV, kept until somebody gets or loses a slot: most rounds admit nobody."""
        if self._shared_kv is None:
            self._shared_kv = SharedKv(self.tree_cache, [*self.running_batch.reqs, *self.can_run_list])
        return self._shared_kv

    def _take_slot(self, victim: Victim, reason: PreemptionReason) -> None:
        """Let ``victim`` give way: whole before the policy hears of it."""
        batch, req = self.running_batch, victim.req
        index, count = batch.reqs.index(req), len(batch.reqs)
        self._release(index)
        self.memory_budget.total_offset -= victim.reserve
        self.preempt_list.append(req)
        self._shared_kv = None
        batch.filter_batch(keep_indices=[i for i in range(count) if i != index])
        batch.batch_is_full = False  # else the next candidate preempts although a slot may be free
        self.req_states = None  # SGLang's forecast without a radix cache: made anew from who is left
        kept = req.seqlen - 1 if self.admission.keeps_kv else 0
        self._ask(self.admission.side.on_preempt, req, kept, reason, otherwise=None)

    def _release(self, index: int) -> None:
        """Free slot and KV of a running request; where its KV cannot be kept, as SGLang does it."""
        batch = self.running_batch
        req, others = batch.reqs[index], len(batch.reqs) - 1
        try:
            with self.admission.release():
                batch.release_req(index, others)
        except Exception as error:
            self.admission.fall_back("release_kv_cache", error)
            if req.kv.holds_kv:
                batch.release_req(index, others)


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
