"""``engine``: SGLang's own scheduling loop with our hooks and without a model: real batches, KV pool and radix cache.

The "model" appends one token a step; everything that admits, preempts, retracts, keeps and frees is SGLang's code.
"""

import random
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from laps_sd.scheduler import CostModel, Prediction, SurvivalCurve
from laps_sd.serving.config import ServingConfig
from laps_sd.serving.flags import ACTIVE_ENV, META_KEY, WIRE_KEY
from laps_sd.serving.hooks.targets import SCHEDULER_TARGETS, Target
from laps_sd.serving.launch import Launch

VOCABULARY = 90

#: Nothing is charged; else the cost is learned from how long a test's own steps take.
FREE = CostModel.unit()


class PlainStreamer:
    """What our streamer adds to."""

    def build_additional_customized_info(self, reqs: list[Any]) -> dict[str, list[Any]]:
        return {}


class Engine:
    """A scheduler without a model.

    Parameters
    ----------
    hooks : SchedulerHooks
        Those in place.
    slots : int
        Requests that run together.
    kv_tokens : int
        Size of the KV pool.
    chunk : int
        Most prompt tokens of one prefill.
    unified : bool
        With the prefix cache that a server has by default, instead of the simple one.
    mixed : bool
        Running requests decode in the prefill of others.
    """

    def __init__(
        self,
        hooks: Any,
        slots: int,
        kv_tokens: int,
        chunk: int = 4096,
        max_queued: int | None = None,
        unified: bool = False,
        mixed: bool = False,
    ) -> None:
        import torch
        from sglang.srt.disaggregation.utils import DisaggregationMode
        from sglang.srt.managers.schedule_batch import ScheduleBatch
        from sglang.srt.managers.scheduler import Scheduler
        from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
        from sglang.srt.mem_cache.cache_init_params import CacheInitParams
        from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
        from sglang.srt.mem_cache.radix_cache import RadixCache
        from sglang.srt.mem_cache.unified_cache.components import ComponentType
        from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
        from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

        self.hooks = hooks
        self.kv_tokens = kv_tokens
        self.rows = ReqToTokenPool(slots, 4096, "cpu", False)
        self.allocator = TokenToKVPoolAllocator(kv_tokens, torch.float32, "cpu", SimpleNamespace(), False)
        cache = CacheInitParams(
            disable=False, req_to_token_pool=self.rows, token_to_kv_pool_allocator=self.allocator, page_size=1,
            tree_components=(ComponentType.FULL,),
        )  # fmt: skip
        self.tree: Any = UnifiedRadixCache(cache) if unified else RadixCache(cache)
        no = SimpleNamespace
        reporter = no(enable_metrics=False, current_scheduler_metrics_enabled=False, num_retracted_reqs=0)
        self.scheduler: Any = Scheduler.__new__(Scheduler)
        self.scheduler.__dict__.update(
            schedule_policy="laps-sd", enable_hierarchical_cache=False, enable_priority_scheduling=False,
            schedule_low_priority_values_first=False, metrics_reporter=reporter, max_running_requests=slots,
            grammar_manager=no(has_waiting_grammars=lambda: False, abort_requests=lambda recv: None),
            is_hybrid_swa=False, waiting_queue=[], last_batch=None, enable_continuous_input_polling=False,
            mm_receiver=None, _pending_chunked_abort_req=None, chunked_req=None, tokenizer=None,
            min_free_slots_delayer=None, req_to_token_pool=self.rows,
            beam_coordinator=no(pending_member_rows=lambda batch: 0, retire_group=lambda req: None),
            tp_worker=no(model_runner=no(attn_backend=no(), prefill_aware_swa=False)), page_size=1,
            tree_cache=self.tree, token_to_kv_pool_allocator=self.allocator, max_prefill_tokens=4096,
            chunked_prefill_size=chunk, is_mixed_chunk=mixed, priority_scheduling_preemption_threshold=0,
            dllm_config=None, dynamic_chunk_sizer=None, enable_lora=False, enable_hicache_storage=False,
            enable_lmcache=False, truncation_align_size=None, enable_overlap=False,
            model_config=no(is_encoder_decoder=False, vocab_size=VOCABULARY + 10, hf_config=no(), is_multimodal=False),
            spec_algorithm=SpeculativeAlgorithm.from_string(None), enable_unified_cache_external_linker=False,
            hisparse_coordinator=None, load_inquirer=no(_get_num_pending_tokens=lambda **_: 0),
            processed_tokens_counter=0, disaggregation_mode=DisaggregationMode.NULL, decode_offload_manager=None,
            abort_on_priority_when_disabled=False, max_queued_requests=max_queued, forward_ct=0,
            enable_skip_finishing_decode=False, result_queue=None,
            send_abort_output=partial(hooks.table["send_abort_output"], self._aborted, None),
        )  # fmt: skip
        self.scheduler.init_schedule_policy()
        self.running = self.scheduler.running_batch = ScheduleBatch(reqs=[])
        self.streamer = hooks.get_output_streamer_class(PlainStreamer, self.scheduler)()
        self.finished: list[Any] = []
        self.aborted: list[str] = []
        self.reasons: dict[str, Any] = {}

    def submit(
        self, rid: str, *, prompt: int, tokens: int, limit: int | None = None, predicted: int | None = -1,
        shared: int = 0,
    ) -> Any:  # fmt: skip
        """A request of ``prompt`` tokens that will produce ``tokens``; predicted well unless ``predicted`` is given.

        The first ``shared`` tokens of the prompt are those of everybody; the rest hang on ``rid``.
        """
        from sglang.srt.sampling.sampling_params import SamplingParams

        expected = tokens if predicted == -1 else predicted
        wire = {} if expected is None else Prediction(SurvivalCurve.lognormal(expected, 0.2)).to_wire()
        params = SamplingParams(max_new_tokens=limit or tokens, temperature=0.0, custom_params={WIRE_KEY: wire})
        params.normalize(None)
        everybody, own = random.Random("everybody"), random.Random(rid)
        draws = [everybody] * min(shared, prompt) + [own] * max(prompt - shared, 0)
        ids = array("q", [draw.randrange(1, VOCABULARY) for draw in draws])
        recv = SimpleNamespace(rid=rid)
        req = self.scheduler._create_generation_req(recv, rid, "", ids, params, vocab_size=VOCABULARY + 10)
        req.tokenizer, req.will_produce = None, tokens
        assert req.sampling_params.custom_params is None, "our key is off before the request is made"
        self.scheduler._add_request_to_queue(req)
        return req

    def round(self) -> None:
        """One pass of the scheduler: a prefill if there is one, else a decode step."""
        self.scheduler.process_pending_chunked_abort()
        plan = self.scheduler.get_new_batch_prefill(self.running)
        batch, self.running = plan.batch_to_run, plan.running_batch
        self.scheduler.running_batch = self.running
        if batch is not None:
            self._prefill(batch)
        elif not self.running.is_empty():
            step = self.scheduler.update_running_batch(self.running)
            if step is not None and not step.is_empty():
                self._decode(step)
        self.scheduler.forward_ct += 1
        self.check_memory()

    def abort(self, rid: str) -> None:
        """Its client went away."""
        from sglang.srt.managers.io_struct import AbortReq

        self.scheduler.abort_request(AbortReq(rid=rid))

    def run(self, rounds: int = 3000) -> None:
        """Go on until nothing waits or runs."""
        for _ in range(rounds):
            if not self.scheduler.waiting_queue and self.running.is_empty() and self.scheduler.chunked_req is None:
                return
            self.round()
        raise AssertionError(f"stuck: {[r.rid for r in self.scheduler.waiting_queue]} wait")

    def check_memory(self) -> None:
        """Every KV token is free, in the tree, or some running request's: no leak and no double free."""
        holders = [*self.running.reqs, *([self.scheduler.chunked_req] if self.scheduler.chunked_req else [])]
        own = sum(r.kv.kv_allocated_len - r.kv.cache_protected_len for r in holders if r.kv.holds_kv)
        in_tree = self.tree.evictable_size() + self.tree.protected_size()
        assert self.allocator.available_size() + in_tree + own == self.kv_tokens
        assert self.rows.available_size() + sum(r.kv.holds_kv for r in holders) == self.rows.size

    def _prefill(self, batch: Any) -> None:
        self.hooks.table["process_batch_result_prefill"](lambda *_: self._append_all(batch), None, batch, None)
        chunked = self.scheduler.chunked_req
        batch.filter_batch(reqs_to_exclude=[chunked] if chunked is not None else None)
        if batch.is_empty():
            return
        if self.running.is_empty():
            self.running = batch
        else:
            self.running.merge_batch(batch)
        self.scheduler.running_batch = self.running

    def _append_all(self, batch: Any) -> None:
        from sglang.srt.mem_cache.common import checkpoint_kv_cache

        chunked = self.scheduler.chunked_req
        for req in batch.reqs:
            req.is_retracted = False
            if req is chunked:
                checkpoint_kv_cache(req, self.tree)
                req.inflight_middle_chunks = 0
                continue
            self._append(req)
            if not req.finished() and req not in (batch.decoding_reqs or ()):
                checkpoint_kv_cache(req, self.tree)

    def _decode(self, batch: Any) -> None:
        tokens = [[self._next(req)] for req in batch.reqs]
        result = SimpleNamespace(num_correct_drafts_per_req_cpu=None, speculative_num_draft_tokens=None, cap_lens=None)
        self.hooks.table["_normalize_decode_outputs"]((tokens, None), None, batch=batch, result=result)
        for req in batch.reqs:
            self._append(req)
        batch.filter_batch()
        self.running = self.scheduler.running_batch = batch

    def _next(self, req: Any) -> int:
        return self.token(len(req.origin_input_ids), len(req.output_ids))

    def _append(self, req: Any) -> None:
        from sglang.srt.managers.schedule_batch import FINISH_MATCHED_TOKEN
        from sglang.srt.mem_cache.common import release_kv_cache

        token = self._next(req)
        req.output_ids.append(token)
        if len(req.output_ids) >= req.will_produce:
            req.finished_reason, req.finished_len = FINISH_MATCHED_TOKEN(token), len(req.output_ids)
        else:
            req.update_finish_state()
        if req.finished():
            release_kv_cache(req, self.tree, checkpoint=True)
            sent = self.streamer.build_additional_customized_info([req])
            req.fields = sent[META_KEY][0][0] if sent else None
            self.finished.append(req)

    @staticmethod
    def token(prompt: int, index: int) -> int:
        """What the "model" says after ``index`` tokens of its answer to a prompt of so many."""
        return 1 + (prompt * 7 + index * 13) % (VOCABULARY - 1)

    @staticmethod
    def names(reqs: list[Any]) -> list[str]:
        return [req.rid for req in reqs]

    def preemptions(self) -> int:
        """How often anybody lost a slot."""
        return sum(
            req.laps_sd.state.preemptions for req in [*self.finished, *self.running.reqs, *self.scheduler.waiting_queue]
        )

    def kept(self) -> list[Any]:
        """Everything about requests that our side still holds."""
        side: Any = self.hooks.active.side
        policy = side.policy
        ranked, yielding = policy._ranked, policy._victims
        holders = [side._waiting, side._running, side._missed, policy._waiting, yielding._order, yielding._members]
        return [held for held in (*holders, ranked._items, ranked._keys, ranked._members, ranked._changed) if held]

    def _aborted(self, _scheduler: None, abort: Any, req: Any) -> None:
        self.aborted.append(req.rid)
        self.reasons[req.rid] = abort


def hook(monkeypatch: pytest.MonkeyPatch, target: Target, ours: Callable[..., Any]) -> None:
    """Put one hook in place the way SGLang does, for the length of a test."""
    import pkgutil
    import sys

    from sglang.srt.plugins.hook_registry import HookType, _wrap_fn

    owner = pkgutil.resolve_name(target.path.rpartition(".")[0])
    name = target.path.rpartition(".")[2]
    raw = vars(owner)[name]
    original = raw.__func__ if isinstance(raw, staticmethod) else raw
    wrapped: Any = _wrap_fn(original, ours, HookType(target.kind))
    monkeypatch.setattr(owner, name, staticmethod(wrapped) if isinstance(raw, staticmethod) else wrapped)
    if isinstance(owner, ModuleType):  # others imported the function by name
        for module in list(sys.modules.values()):
            if module is not owner and vars(module).get(name) is original:
                monkeypatch.setattr(module, name, wrapped)


@pytest.fixture
def engine(sglang: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Engine]]:
    """``engine(slots=2, kv_tokens=200, config={...})``: a scheduler with laps-sd active."""
    from sglang.srt.runtime_context import publish, restore_context, snapshot_context
    from sglang.srt.server_args import ServerArgs

    from laps_sd.serving.hooks.scheduler import SchedulerHooks

    hooks = SchedulerHooks()
    before = snapshot_context()
    publish(ServerArgs(model_path="dummy", device="cpu", pp_max_micro_batch_size=64), role="scheduler")
    for target in SCHEDULER_TARGETS:
        hook(monkeypatch, target, hooks.table[target.name])

    def make(config: dict[str, Any] | None = None, cost: CostModel = FREE, **kwargs: Any) -> Engine:
        monkeypatch.setenv(ACTIVE_ENV, "")
        Launch(None, ServingConfig.model_validate({"unpredicted": True, **(config or {})}), cost).to_environment()
        return Engine(hooks, **kwargs)

    yield make
    restore_context(before)


@pytest.fixture
def counting(tmp_path: Path) -> Iterator[Callable[[Any], Any]]:
    """``counting(it)``: count the rounds of this engine too; returns the hooks."""

    started: list[Any] = []

    def start(it: Any) -> Any:
        from laps_sd.serving.hooks.rounds import RoundHooks

        hooks = RoundHooks()
        started.append(hooks)
        hooks.open(tmp_path / "rounds.jsonl")
        ours = dict(it.hooks.table)
        create = it.scheduler._create_generation_req

        def created(*args: Any, **kwargs: Any) -> Any:
            req = create(*args, **kwargs)
            hooks.table["_create_generation_req"](req, it.scheduler)
            return req

        def prefilled(original: Any, *args: Any) -> None:
            hooks.table["process_batch_result_prefill"](
                lambda *inner: ours["process_batch_result_prefill"](original, *inner), *args
            )

        def decoded(*args: Any, **kwargs: Any) -> None:
            ours["_normalize_decode_outputs"](*args, **kwargs)
            hooks.table["_normalize_decode_outputs"](*args, **kwargs)

        it.scheduler._create_generation_req = created
        table = {**ours, "process_batch_result_prefill": prefilled, "_normalize_decode_outputs": decoded}
        it.hooks = SimpleNamespace(table=table, active=it.hooks.active)
        it.streamer = hooks.get_output_streamer_class(type(it.streamer), it.scheduler)()
        return hooks

    yield start
    for hooks in started:
        hooks.close()
