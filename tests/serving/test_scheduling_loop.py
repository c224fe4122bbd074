"""SGLang's own scheduling loop with our hooks, without a model: real batches, real KV pool, real radix cache.

The "model" appends one token a step; everything that admits, preempts, retracts, keeps and frees is SGLang's code.
"""

import random
from array import array
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from laps_sd.scheduler import CostModel, Prediction, SurvivalCurve
from laps_sd.serving.config import ServingConfig
from laps_sd.serving.hooks.targets import SCHEDULER_TARGETS, Target
from laps_sd.serving.launch import Launch
from laps_sd.serving.names import ACTIVE_ENV, WIRE_KEY

VOCABULARY = 90

#: Nothing is charged; else the cost is learned from how long a test's own steps take.
FREE = CostModel.unit()


class Engine:
    """A scheduler without a model.

    Parameters
    ----------
    slots : int
        Requests that run together.
    kv_tokens : int
        Size of the KV pool.
    chunk : int
        Most prompt tokens of one prefill.
    unified : bool
        With the prefix cache that a server has by default, instead of the simple one.
    """

    def __init__(
        self, slots: int, kv_tokens: int, chunk: int = 4096, max_queued: int | None = None, unified: bool = False
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
            mm_receiver=None, _pending_chunked_abort_req=None, chunked_req=None,
            min_free_slots_delayer=None, req_to_token_pool=self.rows,
            beam_coordinator=no(pending_member_rows=lambda batch: 0, retire_group=lambda req: None),
            tp_worker=no(model_runner=no(attn_backend=no(), prefill_aware_swa=False)), page_size=1,
            tree_cache=self.tree, token_to_kv_pool_allocator=self.allocator, max_prefill_tokens=4096,
            chunked_prefill_size=chunk, is_mixed_chunk=False, priority_scheduling_preemption_threshold=0,
            dllm_config=None, dynamic_chunk_sizer=None, enable_lora=False, enable_hicache_storage=False,
            enable_lmcache=False, truncation_align_size=None, enable_overlap=False,
            model_config=no(is_encoder_decoder=False, vocab_size=VOCABULARY + 10, hf_config=no(), is_multimodal=False),
            spec_algorithm=SpeculativeAlgorithm.from_string(None), enable_unified_cache_external_linker=False,
            hisparse_coordinator=None, load_inquirer=no(_get_num_pending_tokens=lambda **_: 0),
            processed_tokens_counter=0, disaggregation_mode=DisaggregationMode.NULL, decode_offload_manager=None,
            abort_on_priority_when_disabled=False, max_queued_requests=max_queued, forward_ct=0,
            enable_skip_finishing_decode=False, result_queue=None, send_abort_output=self._aborted,
        )  # fmt: skip
        self.scheduler.init_schedule_policy()
        self.running = self.scheduler.running_batch = ScheduleBatch(reqs=[])
        self.finished: list[Any] = []
        self.aborted: list[str] = []

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
        from sglang.srt.mem_cache.common import checkpoint_kv_cache

        chunked = self.scheduler.chunked_req
        for req in batch.reqs:
            req.is_retracted = False
            if req is chunked:
                checkpoint_kv_cache(req, self.tree)
                req.inflight_middle_chunks = 0
                continue
            self._append(req)
            if not req.finished():
                checkpoint_kv_cache(req, self.tree)
        batch.filter_batch(reqs_to_exclude=[chunked] if chunked is not None else None)
        if batch.is_empty():
            return
        if self.running.is_empty():
            self.running = batch
        else:
            self.running.merge_batch(batch)
        self.scheduler.running_batch = self.running

    def _decode(self, batch: Any) -> None:
        from laps_sd.serving.hooks import scheduler as scheduler_hooks

        tokens = [[self._next(req)] for req in batch.reqs]
        result = SimpleNamespace(num_correct_drafts_per_req_cpu=None, speculative_num_draft_tokens=None)
        scheduler_hooks.normalize_decode_outputs((tokens, None), None, batch=batch, result=result)
        for req in batch.reqs:
            self._append(req)
        batch.filter_batch()
        self.running = self.scheduler.running_batch = batch

    def _next(self, req: Any) -> int:
        return 1 + (len(req.origin_input_ids) * 7 + len(req.output_ids) * 13) % (VOCABULARY - 1)

    def _append(self, req: Any) -> None:
        from sglang.srt.managers.schedule_batch import FINISH_MATCHED_TOKEN
        from sglang.srt.mem_cache.common import release_kv_cache

        from laps_sd.serving.hooks import scheduler as scheduler_hooks

        token = self._next(req)
        req.output_ids.append(token)
        if len(req.output_ids) >= req.will_produce:
            req.finished_reason, req.finished_len = FINISH_MATCHED_TOKEN(token), len(req.output_ids)
        else:
            req.update_finish_state()
        if req.finished():
            release_kv_cache(req, self.tree, checkpoint=True)
            assert scheduler_hooks._side is not None
            cut = req.finished_reason.to_json()["type"] != "stop"
            req.fields = scheduler_hooks._side.on_finish(req, cut=cut)
            self.finished.append(req)

    def _aborted(self, abort: Any, req: Any) -> None:
        self.aborted.append(req.rid)


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

    from laps_sd.serving.hooks import scheduler as scheduler_hooks

    before = snapshot_context()
    publish(ServerArgs(model_path="dummy", device="cpu", pp_max_micro_batch_size=64), role="scheduler")
    for target in SCHEDULER_TARGETS:
        hook(monkeypatch, target, scheduler_hooks.HOOKS[target.path.rpartition(".")[2]])
    for name in ("_side", "_clock", "_adder"):
        monkeypatch.setattr(scheduler_hooks, name, None)

    def make(config: dict[str, Any] | None = None, cost: CostModel = FREE, **kwargs: Any) -> Engine:
        monkeypatch.setenv(ACTIVE_ENV, "")
        Launch(None, ServingConfig.model_validate({"unpredicted": True, **(config or {})}), cost).to_environment()
        return Engine(**kwargs)

    yield make
    restore_context(before)


@pytest.mark.parametrize(("prefill_s", "first"), [(0.1, "short"), (1000.0, "long")])
def test_a_cost_model_that_is_told_decides_from_the_first_steps_on(engine: Any, prefill_s: float, first: str) -> None:
    it = engine(slots=1, kv_tokens=2000, cost=CostModel(prefill_s=prefill_s))
    it.submit("long", prompt=20, tokens=300)
    for _ in range(10):
        it.round()
    it.submit("short", prompt=5, tokens=8)
    it.run()
    assert names(it.finished)[0] == first


def names(reqs: list[Any]) -> list[str]:
    return [req.rid for req in reqs]


def test_a_short_request_takes_the_slot_of_a_long_one_and_the_long_one_resumes(engine: Any) -> None:
    it = engine(slots=1, kv_tokens=2000)
    long = it.submit("long", prompt=20, tokens=300)
    for _ in range(10):
        it.round()
    it.submit("short", prompt=5, tokens=8)
    it.run()
    assert names(it.finished) == ["short", "long"]
    assert len(long.output_ids) == 300
    assert long.fields["preemptions"] == 1
    assert long.fields["recomputed_tokens"] == 1, "its KV stayed in the radix cache"
    assert list(long.output_ids) == [1 + (20 * 7 + i * 13) % (VOCABULARY - 1) for i in range(300)]


def test_without_keeping_kv_the_recomputation_is_charged(engine: Any) -> None:
    it = engine(slots=1, kv_tokens=2000, config={"preemption": {"keep_kv": False}})
    long = it.submit("long", prompt=20, tokens=300)
    for _ in range(10):
        it.round()
    it.submit("short", prompt=5, tokens=8)
    it.run()
    assert long.fields["preemptions"] == 1
    assert long.fields["recomputed_tokens"] >= 10, "the prompt is still shared, its own tokens are not"


def test_preemption_can_be_turned_off(engine: Any) -> None:
    it = engine(slots=1, kv_tokens=2000, config={"preemption": {"enabled": False}})
    long = it.submit("long", prompt=20, tokens=100)
    for _ in range(10):
        it.round()
    it.submit("short", prompt=5, tokens=8)
    it.run()
    assert names(it.finished) == ["long", "short"]
    assert long.fields["preemptions"] == 0


def test_a_request_that_finds_no_kv_tokens_preempts(engine: Any) -> None:
    """Slots are free, KV is not: SGLang alone would never ask for a victim here."""
    config = {"admission": {"reserve": "sglang"}}
    it = engine(slots=4, kv_tokens=420, config=config)
    long = it.submit("long", prompt=40, tokens=300)
    for _ in range(20):
        it.round()
    short = it.submit("short", prompt=100, tokens=10, limit=100)
    it.run()
    assert names(it.finished) == ["short", "long"]
    assert long.fields["preemptions"] >= 1
    assert short.fields["preemptions"] == 0


def test_kv_preemption_can_be_turned_off(engine: Any) -> None:
    config = {"admission": {"reserve": "sglang"}, "preemption": {"when_kv_full": False}}
    it = engine(slots=4, kv_tokens=420, config=config)
    it.submit("long", prompt=40, tokens=300)
    for _ in range(20):
        it.round()
    it.submit("short", prompt=100, tokens=10, limit=100)
    it.run()
    assert names(it.finished) == ["long", "short"]


def test_a_lighter_request_passes_one_that_does_not_fit(engine: Any) -> None:
    it = engine(slots=4, kv_tokens=300, config={"preemption": {"enabled": False}})
    it.submit("running", prompt=40, tokens=120)
    it.round()
    it.submit("heavy", prompt=150, tokens=5, limit=100)
    it.submit("light", prompt=5, tokens=30)
    for _ in range(3):
        it.round()
    assert "light" in names(it.running.reqs)
    it.run()
    assert sorted(names(it.finished)) == ["heavy", "light", "running"]


def test_nothing_passes_when_that_is_turned_off(engine: Any) -> None:
    config = {"preemption": {"enabled": False}, "admission": {"pass_over": 0}}
    it = engine(slots=4, kv_tokens=300, config=config)
    it.submit("running", prompt=40, tokens=120)
    it.round()
    it.submit("heavy", prompt=150, tokens=5, limit=100)
    it.submit("light", prompt=5, tokens=30)
    for _ in range(3):
        it.round()
    assert names(it.running.reqs) == ["running"]


def test_retraction_takes_the_longest_and_forgets_nothing(engine: Any) -> None:
    """Reserving by predictions that are far too short lets too many in; SGLang then has to retract."""
    it = engine(slots=4, kv_tokens=160, config={"preemption": {"enabled": False}})
    reqs = [it.submit(f"r{i}", prompt=10, tokens=40 + 10 * i, limit=90, predicted=4) for i in range(4)]
    it.run()
    assert sorted(names(it.finished)) == ["r0", "r1", "r2", "r3"]
    assert any(req.retraction_count for req in reqs), "the pool was too small on purpose"
    for i, req in enumerate(reqs):
        assert len(req.output_ids) == 40 + 10 * i
        assert req.laps_sd.state.generated == 40 + 10 * i


def test_a_prompt_in_chunks_is_no_victim_until_it_decodes(engine: Any) -> None:
    it = engine(slots=2, kv_tokens=2000, chunk=32)
    chunked = it.submit("chunked", prompt=200, tokens=20)
    it.round()
    for i in range(3):
        it.submit(f"short{i}", prompt=5, tokens=4)
    while it.scheduler.chunked_req is not None:
        it.round()
    assert chunked.laps_sd.state.preemptions == 0
    it.run()
    assert sorted(names(it.finished)) == ["chunked", "short0", "short1", "short2"]
    assert len(chunked.output_ids) == 20


def test_a_preempted_request_is_not_turned_away_at_the_queue_limit(engine: Any) -> None:
    it = engine(slots=1, kv_tokens=2000, max_queued=1)
    it.submit("long", prompt=20, tokens=200)
    for _ in range(5):
        it.round()
    it.submit("short", prompt=5, tokens=8)
    it.submit("too many", prompt=5, tokens=8)
    assert it.aborted == ["too many"], "the limit holds for new requests"
    it.run()
    assert sorted(names(it.finished)) == ["long", "short"]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("config", [{}, {"preemption": {"keep_kv": False}}, {"admission": {"reserve": "sglang"}}])
def test_whatever_arrives_everybody_ends_and_no_token_leaks(engine: Any, seed: int, config: dict[str, Any]) -> None:
    rng = random.Random(seed)
    size = {"slots": rng.randint(1, 4), "kv_tokens": rng.choice([220, 400, 900]), "chunk": rng.choice([16, 4096])}
    it = engine(config=config, **size)
    reqs = []
    for i in range(25):
        tokens = rng.choice([2, 5, 20, 60])
        predicted = rng.choice([-1, -1, None, 3, 90])  # well, not at all, far too short, far too long
        prompt = rng.randint(1, 40)
        req = it.submit(f"r{i}", prompt=prompt, tokens=tokens, limit=rng.choice([tokens, 100]), predicted=predicted)
        reqs.append((req, tokens))
        for _ in range(rng.randint(0, 6)):
            it.round()
        if rng.random() < 0.1 and it.scheduler.waiting_queue:
            # Its client goes away: SGLang takes it out of the queue and tells nobody.
            gone = it.scheduler.waiting_queue.pop(rng.randrange(len(it.scheduler.waiting_queue)))
            reqs = [(r, n) for r, n in reqs if r is not gone]
    it.run()
    assert sorted(names(it.finished)) == sorted(r.rid for r, _ in reqs)
    assert all(len(req.output_ids) == tokens for req, tokens in reqs)
    assert it.allocator.available_size() + it.tree.evictable_size() == it.kv_tokens
    assert it.tree.protected_size() == 0


def fill_beside_a_cached_prompt(it: Engine) -> Any:
    """Three requests fill the KV pool beside the prompt of ``c``, which comes again: return it, waiting."""
    it.submit("c", prompt=100, tokens=1)
    it.run()
    for i in range(3):
        it.submit(f"v{i}", prompt=90, tokens=100, predicted=90)
        it.round()
    for _ in range(66):
        it.round()
    assert len(it.running.reqs) == 3
    return it.submit("c", prompt=100, tokens=3, limit=40)


def preemptions(it: Engine) -> int:
    return sum(req.laps_sd.state.preemptions for req in [*it.finished, *it.running.reqs, *it.scheduler.waiting_queue])


@pytest.mark.parametrize("unified", [False, True])
def test_a_candidates_cached_prefix_outlives_the_release_of_its_victim(engine: Any, unified: bool) -> None:
    """Releasing a victim evicts, the oldest first: the prefix that the candidate was just matched with."""
    it = engine(slots=4, kv_tokens=580, unified=unified)
    candidate = fill_beside_a_cached_prompt(it)
    it.round()
    assert candidate in it.running.reqs
    assert candidate.laps_sd.state.cached_tokens == 99
    assert preemptions(it) == 1
    it.run()
    assert len(it.finished) == 5


@pytest.mark.parametrize("unified", [False, True])
def test_a_cached_prefix_is_no_room_for_the_one_it_belongs_to(engine: Any, unified: bool) -> None:
    """Counted as free it would be enough, and nobody be preempted round after round, while SGLang's check says no."""
    it = engine(slots=4, kv_tokens=620, unified=unified)
    candidate = fill_beside_a_cached_prompt(it)
    it.round()
    assert candidate in it.running.reqs
    assert preemptions(it) == 1


def test_who_needs_a_slot_for_every_beam_preempts_nobody(engine: Any) -> None:
    """One slot is free, four are needed: SGLang calls that full, and one victim would not do."""
    it = engine(slots=4, kv_tokens=2000)
    for i in range(3):
        it.submit(f"long{i}", prompt=20, tokens=300)
    for _ in range(10):
        it.round()
    beams = it.submit("beams", prompt=5, tokens=8)
    beams.beam_group = SimpleNamespace(beam_width=4)
    for _ in range(5):
        it.round()
    assert names(it.scheduler.waiting_queue) == ["beams"]
    assert preemptions(it) == 0


def test_who_needs_kv_for_beams_preempts_nobody(engine: Any) -> None:
    it = engine(slots=8, kv_tokens=420, config={"admission": {"reserve": "sglang"}})
    it.submit("long", prompt=40, tokens=300)
    for _ in range(20):
        it.round()
    it.submit("beams", prompt=100, tokens=10, limit=100).beam_group = SimpleNamespace(beam_width=2)
    for _ in range(5):
        it.round()
    assert names(it.running.reqs) == ["long"]
    assert preemptions(it) == 0


@pytest.mark.parametrize("shared", [0, 150])
def test_nobody_loses_a_slot_to_a_request_that_does_not_fit_then(engine: Any, shared: int) -> None:
    """Even without the others it does not fit; those who share its prefix free no token of that."""
    it = engine(slots=2, kv_tokens=300)
    for i in range(2):
        it.submit(f"long{i}", prompt=shared + 10, tokens=50, limit=60, predicted=600, shared=shared)
        it.round()
    it.submit("short", prompt=280, tokens=3, limit=30, predicted=2, shared=shared)
    for _ in range(20):
        it.round()
    assert sorted(names(it.running.reqs)) == ["long0", "long1"]
    assert preemptions(it) == 0


@pytest.mark.parametrize("slots", [2, 3])
def test_who_shares_a_prefix_frees_it_for_nobody(engine: Any, slots: int) -> None:
    it = engine(slots=slots, kv_tokens=300)
    for i in range(2):
        it.submit(f"long{i}", prompt=160, tokens=40, limit=50, predicted=600, shared=150)
        it.round()
    it.submit("short", prompt=270, tokens=3, limit=40, predicted=2, shared=150)
    for _ in range(20):
        it.round()
    assert preemptions(it) == 0


def test_a_slot_that_became_free_is_not_preempted_for_again(engine: Any) -> None:
    """The first candidate takes the KV of two and the slot of one; the second finds the other slot."""
    it = engine(slots=3, kv_tokens=630)
    for i in range(3):
        it.submit(f"long{i}", prompt=100, tokens=100, predicted=600)
        it.round()
    for _ in range(5):
        it.round()
    it.submit("heavy", prompt=320, tokens=3, limit=30).priority = 1  # first in the queue
    it.submit("light", prompt=5, tokens=3)
    it.round()
    assert {"heavy", "light"} <= set(names(it.running.reqs))
    assert preemptions(it) == 2
    it.run()
    assert len(it.finished) == 5


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("unified", [False, True])
def test_with_shared_prefixes_everybody_ends_too(engine: Any, unified: bool, seed: int) -> None:
    rng = random.Random(seed)
    config = rng.choice([{}, {"preemption": {"keep_kv": False}}, {"admission": {"reserve": "sglang"}}])
    size = {"slots": rng.randint(2, 6), "kv_tokens": rng.choice([260, 400, 600]), "chunk": rng.choice([16, 4096])}
    it = engine(config=config, unified=unified, **size)
    reqs = []
    for _ in range(40):
        tokens = rng.choice([2, 5, 20, 60])
        limit, predicted = rng.choice([tokens, 80]), rng.choice([-1, -1, 3, 90])
        prompt, shared = rng.choice([10, 60, 100]), rng.choice([0, 30, 90])
        rid = f"r{rng.randrange(8)}"  # the same again: its whole prompt is cached
        reqs.append(
            (it.submit(rid, prompt=prompt, tokens=tokens, limit=limit, predicted=predicted, shared=shared), tokens)
        )
        for _ in range(rng.randint(0, 6)):
            it.round()
    it.run()
    assert [len(req.output_ids) for req, _ in reqs] == [tokens for _, tokens in reqs]
    assert it.allocator.available_size() + it.tree.evictable_size() == it.kv_tokens
    assert it.tree.protected_size() == 0


def test_the_longest_shared_prefix_is_found(sglang: ModuleType) -> None:
    from laps_sd.serving.hooks.prefill_adder import longest_shared

    rng = random.Random(0)
    for _ in range(300):
        lists = [array("q", [rng.randrange(2) for _ in range(rng.randint(0, 12))]) for _ in range(4)]
        ids, *others = lists
        best = 0
        for other in others:
            n = 0
            while n < min(len(ids), len(other)) and ids[n] == other[n]:
                n += 1
            best = max(best, n)
        assert longest_shared(ids, others) == best


def kept() -> list[Any]:
    """Everything about requests that our side still holds."""
    from laps_sd.serving.hooks import scheduler as scheduler_hooks

    side: Any = scheduler_hooks._side
    policy = side.policy
    ranked, yielding = policy._ranked, policy._victims
    holders = [side._waiting, side._running, side._missed, policy._waiting, yielding._order, yielding._members]
    return [held for held in (*holders, ranked._items, ranked._keys, ranked._key_of, ranked._changed) if held]


def pass_time(it: Engine) -> None:
    """Enough rounds for two looks at what SGLang still has."""
    for i in range(80):
        it.submit(f"later{i}", prompt=3, tokens=2)
        it.run()


def end_by_itself(it: Engine) -> None:
    it.submit("r", prompt=10, tokens=20)
    it.run()


def abort_in_the_queue(it: Engine) -> None:
    it.submit("running", prompt=10, tokens=20)
    it.round()
    it.submit("r", prompt=10, tokens=20)
    it.abort("r")
    it.run()


def abort_in_the_queue_after_a_round(it: Engine) -> None:
    it.submit("running", prompt=10, tokens=20)
    it.round()
    for i in range(5):
        it.submit(f"r{i}", prompt=10, tokens=20)
    it.round()
    it.abort("r")
    it.abort("running")
    it.run()


def abort_while_running(it: Engine) -> None:
    req = it.submit("r", prompt=10, tokens=20)
    it.round()
    it.abort("r")
    it.run()
    assert req.finished_reason.to_json()["type"] == "abort"


def abort_between_two_chunks(it: Engine) -> None:
    it.submit("r", prompt=200, tokens=20)
    it.round()
    assert it.scheduler.chunked_req is not None
    it.abort("r")
    it.run()
    assert it.aborted == ["r"]


def outgrow_the_memory_alone(it: Engine) -> None:
    req = it.submit("r", prompt=10, tokens=900, limit=50)
    it.round()
    req.sampling_params.max_new_tokens = 900  # verify steps allocate ahead; here its limit must do
    it.run()
    assert it.aborted == ["r"], "SGLang aborted it for want of memory, and told the tokenizer process only"


def preempted_then_aborted(it: Engine) -> None:
    it.submit("r", prompt=20, tokens=200)
    for _ in range(10):
        it.round()
    it.submit("short", prompt=5, tokens=30)
    it.round()
    assert names(it.scheduler.waiting_queue) == ["r"]
    it.abort("r")
    it.run()


def retracted_then_aborted_before_anybody_ranks(it: Engine) -> None:
    it.submit("r", prompt=20, tokens=200)
    for _ in range(5):
        it.round()
    (req,) = it.running.reqs
    it.running.release_req(0, 0)
    it.running.filter_batch(keep_indices=[])
    it.scheduler._add_request_to_queue(req, is_retracted=True)
    it.abort("r")
    it.run()


ENDS = (
    end_by_itself, abort_in_the_queue, abort_in_the_queue_after_a_round, abort_while_running, abort_between_two_chunks,
    outgrow_the_memory_alone, preempted_then_aborted, retracted_then_aborted_before_anybody_ranks,
)  # fmt: skip


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_however_a_request_ends_nothing_of_it_is_kept(engine: Any, end: Callable[[Engine], None]) -> None:
    it = engine(slots=1, kv_tokens=300, chunk=32)
    end(it)
    pass_time(it)
    assert kept() == []


def test_what_sglang_still_runs_is_not_forgotten(engine: Any) -> None:
    """A long prompt between two chunks is in no batch, and who decodes meanwhile stands still for many rounds."""
    it = engine(slots=3, kv_tokens=2000, chunk=8, config={"preemption": {"enabled": False}})
    decoding = it.submit("decoding", prompt=4, tokens=90)
    it.round()
    chunked = it.submit("chunked", prompt=900, tokens=5)
    for i in range(100):
        it.submit(f"r{i}", prompt=2, tokens=2)
        it.round()
    assert it.scheduler.chunked_req is chunked
    assert chunked.laps_sd.state.running
    assert decoding.laps_sd.state.running
    it.run()
    assert {"chunked", "decoding"} <= set(names(it.finished))


def test_a_request_that_never_passed_us_ends_without_our_fields(engine: Any) -> None:
    from sglang.srt.managers.schedule_batch import FINISH_ABORT

    from laps_sd.serving.hooks import scheduler as scheduler_hooks

    class Streamer:
        def build_additional_customized_info(self, reqs: list[Any]) -> dict[str, list[Any]]:
            return {}

    it = engine(slots=1, kv_tokens=300)
    ours = it.submit("ours", prompt=5, tokens=9)
    it.scheduler.waiting_queue.clear()
    ours.finished_reason = FINISH_ABORT("no such thing")  # a validation error: answered without ever waiting
    foreign = SimpleNamespace(finished=lambda: True)
    streamer = scheduler_hooks.get_output_streamer_class(Streamer, None)()
    assert streamer.build_additional_customized_info([foreign]) == {}
    sent = streamer.build_additional_customized_info([foreign, ours])["laps_sd"]
    assert sent[0] == []
    assert sent[1][0]["steps"] == 0
    assert kept() == []
