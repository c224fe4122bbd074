"""SGLang's objects, as far as we look at them: one `Protocol` for each of its classes of which we read or call a few.

The table of hook targets (`laps_sd.serving.hooks.targets`) is made from these declarations, and the check before the
first request holds the installed SGLang to them. What is not declared here cannot be read: mypy refuses it, and so
does a test that reads the source of the hooks. No import of SGLang here, so that both sides of a request can use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict, TypeVar

from laps_sd.data.tokenizer import Tokenizer
from laps_sd.serving.rounds import RequestRounds

#: Attributes under which our own records of a request hang on SGLang's object: no part of SGLang.
OURS = frozenset({"laps_sd", "laps_sd_rounds"})


@dataclass(frozen=True, slots=True)
class Description:
    """Which class of SGLang a `Protocol` describes.

    Attributes
    ----------
    path : str
        Dotted path of the class.
    why : str
        What we do with its objects.
    """

    path: str
    why: str


#: Every `Protocol` of this module that describes a class of SGLang.
DESCRIBED: dict[type, Description] = {}

#: Qualified names of the methods here that subclasses of ours override; the others are called as they are.
OVERRIDDEN: set[str] = set()

_Class = TypeVar("_Class", bound=type)
_Method = TypeVar("_Method", bound=Callable[..., object])


def describes(path: str, why: str) -> Callable[[_Class], _Class]:
    """Declare that a `Protocol` is what we know of the class at ``path``.

    Parameters
    ----------
    path : str
        Dotted path of SGLang's class.
    why : str
        What we do with its objects, for the table of targets.
    """

    def note(cls: _Class) -> _Class:
        DESCRIBED[cls] = Description(path, why)
        return cls

    return note


def overridden(method: _Method) -> _Method:
    """Mark a method that a subclass of ours overrides: its parameters must be SGLang's, one by one."""
    OVERRIDDEN.add(method.__qualname__)
    return method


# --- what a client asked for -------------------------------------------------------------------------------------


@describes("sglang.srt.sampling.sampling_params.SamplingParams", "our numbers travel in custom_params")
class SamplingParams(Protocol):
    """How a request is to be answered."""

    custom_params: object
    max_new_tokens: int
    temperature: float
    top_k: int
    ignore_eos: bool
    regex: str | None
    json_schema: str | None
    ebnf: str | None
    structural_tag: str | None
    stop_strs: object
    stop_regex_strs: object
    frequency_penalty: float
    presence_penalty: float
    repetition_penalty: float
    min_new_tokens: int


@describes(
    "sglang.srt.managers.io_struct.TokenizedGenerateReqInput",
    "bound the request's own priority, carry the numbers, and learn whether thinking is on",
)
class TokenizedRequest(Protocol):
    """A request on its way from the tokenizer process to the scheduler."""

    priority: int | None
    sampling_params: SamplingParams
    require_reasoning: bool


class FinishReason(TypedDict, total=False):
    """Why a request ended: ``stop``, ``length`` or ``abort``, and with an abort the reason."""

    type: str
    message: str
    status_code: int | None


class MetaInfo(TypedDict, total=False):
    """The part of a response's ``meta_info`` that we read, and the fields that we add."""

    id: str
    prompt_tokens: int
    completion_tokens: int
    laps_sd: object


@describes("sglang.srt.managers.tokenizer_manager.TokenizerManager", "the tokenizer finds the text of a prompt")
class TokenizerManager(Protocol):
    """SGLang's tokenizer process."""

    tokenizer: Tokenizer | None
    rid_to_state: Mapping[str, RequestInTokenizer]


class ReceivedRequest(Protocol):
    """SGLang's ``GenerateReqInput``: our record hangs on it, nothing of it is read."""

    laps_sd: Any  # Any: a TokenizerRequest, whose module imports this one


@describes(
    "sglang.srt.managers.tokenizer_manager.ReqState",
    "find our record of a request that ended, and add our fields to one that was aborted",
)
class RequestInTokenizer(Protocol):
    """A request that the tokenizer process waits for."""

    obj: ReceivedRequest
    out_list: list[dict[str, Any]]  # Any: JSON has no narrower type


@describes("sglang.srt.managers.io_struct.AbortReq", "our fields travel in the reason of an abort")
class Abort(Protocol):
    """The scheduler tells the tokenizer process that a request is gone."""

    rid: str
    finished_reason: dict[str, str | int | list[int] | None] | None
    abort_message: str | None


# --- a request in the scheduler process --------------------------------------------------------------------------


@describes("sglang.srt.observability.req_time_stats.SchedulerReqTimeStats", "time to the first token, for the record")
class TimeStats(Protocol):
    """When what happened to a request."""

    prefill_finished_time: float


@describes("sglang.srt.managers.schedule_batch.BaseFinishReason", "tell an answer from a request that was cut")
class FinishedReason(Protocol):
    """Why a request ended, as the scheduler holds it."""

    def to_json(self) -> FinishReason:
        """Return the reason by its type."""
        raise NotImplementedError


@describes("sglang.srt.managers.schedule_batch.ReqKvInfo", "is the KV of a victim free already")
class RequestKv(Protocol):
    """What KV a request has."""

    holds_kv: bool


@describes("sglang.srt.managers.schedule_batch.Req", "what ranking, preemption and the record read")
class Req(Protocol):
    """A request in the scheduler process."""

    laps_sd: Any  # Any: a SchedulerRequest, whose module imports this one
    laps_sd_rounds: RequestRounds
    rid: str
    priority: int | None
    origin_input_ids: Sequence[int]
    output_ids: Sequence[int]
    full_untruncated_fill_ids: Sequence[int]
    sampling_params: SamplingParams
    is_retracted: bool
    retraction_count: int
    prefix_len: int
    num_matched_prefix_tokens: int
    seqlen: int
    finished_reason: FinishedReason
    to_finish: FinishedReason | None
    output_ids_through_stop: Sequence[int]
    time_stats: TimeStats
    kv: RequestKv
    beam_group: object
    session: object
    session_generation: int | None
    grammar: object
    return_hidden_states: bool | str
    return_routed_experts: bool
    return_indexer_topk: bool
    custom_logit_processor: str | None
    multimodal_inputs: object
    input_embeds: object
    positional_embed_overrides: object
    token_type_ids: object
    last_node: object  # a node of the prefix cache, or its number in the unified one
    best_match_node: object

    def finished(self) -> bool:
        """Skip requests whose KV is freed already."""
        raise NotImplementedError

    def needs_host_load_back(self) -> bool:
        """Keep the part of a prefix that lies in host memory."""
        raise NotImplementedError


# --- requests that run together ----------------------------------------------------------------------------------


@describes("sglang.srt.sampling.penaltylib.BatchedFrequencyPenalizer", "count the answer so far of who resumes")
class FrequencyPenalties(Protocol):
    """How much each token loses for each time that it was said; a row for each request."""

    frequency_penalties: Any  # Any: a tensor, and this module does not import torch
    cumulated_frequency_penalties: Any  # Any: a tensor, and this module does not import torch


@describes("sglang.srt.sampling.penaltylib.BatchedPresencePenalizer", "count the answer so far of who resumes")
class PresencePenalties(Protocol):
    """How much each token loses once it was said; a row for each request."""

    presence_penalties: Any  # Any: a tensor, and this module does not import torch
    cumulated_presence_penalties: Any  # Any: a tensor, and this module does not import torch


@describes("sglang.srt.sampling.penaltylib.BatchedRepetitionPenalizer", "count the answer so far of who resumes")
class RepetitionPenalties(Protocol):
    """By how much each token is divided once it was said; a row for each request."""

    repetition_penalties: Any  # Any: a tensor, and this module does not import torch
    cumulated_repetition_penalties: Any  # Any: a tensor, and this module does not import torch


@describes("sglang.srt.sampling.penaltylib.BatchedMinNewTokensPenalizer", "count the answer so far of who resumes")
class LeastTokens(Protocol):
    """How many tokens were said; a row for each request."""

    len_output_tokens: Any  # Any: a tensor, and this module does not import torch


@describes("sglang.srt.sampling.penaltylib.orchestrator._BatchedPenalizer", "skip what nobody in a batch asks for")
class Penalizer(Protocol):
    """One kind of penalty, for all requests of a batch."""

    def is_prepared(self) -> bool:
        """Whether it has tensors."""
        raise NotImplementedError


@describes("sglang.srt.sampling.penaltylib.BatchedPenalizerOrchestrator", "the penalties of a batch")
class PenaltyOrchestrator(Protocol):
    """All kinds of penalties of a batch."""

    is_required: bool
    device: str
    penalizers: Mapping[type, Penalizer]


@describes("sglang.srt.sampling.sampling_batch_info.SamplingBatchInfo", "the penalties of a batch")
class SamplingInfo(Protocol):
    """How the next tokens of a batch are chosen."""

    penalizer_orchestrator: PenaltyOrchestrator


@describes("sglang.srt.speculative.spec_info.SpeculativeAlgorithm", "whether drafts are verified")
class SpeculativeAlgorithm(Protocol):
    """How a server drafts."""

    def is_none(self) -> bool:
        """Whether it does not."""
        raise NotImplementedError


@describes(
    "sglang.srt.managers.schedule_batch.ScheduleBatch", "which requests a step was for, and whether a slot is free"
)
class Batch(Protocol):
    """Requests that run together."""

    reqs: list[Req]
    decoding_reqs: list[Req] | None
    sampling_info: SamplingInfo
    spec_algorithm: SpeculativeAlgorithm
    enable_overlap: bool
    extend_num_tokens: int | None
    after_idle_gap: bool
    batch_is_full: bool

    def release_req(self, idx: int, remaing_req_count: int) -> None:
        """Take the slot of a victim."""
        raise NotImplementedError

    def filter_batch(self, *, keep_indices: list[int]) -> None:
        """Drop the victim."""
        raise NotImplementedError


@describes(
    "sglang.srt.managers.utils.GenerationBatchResult",
    "correct drafts of each request, and how many were verified in this very step",
)
class BatchResult(Protocol):
    """What a decode step gave."""

    num_correct_drafts_per_req_cpu: Sequence[int] | None
    speculative_num_draft_tokens: int | None
    #: Tokens verified of each request, where that differs; a tensor.
    cap_lens: Any  # Any: a tensor or None, and this module does not import torch


# --- one admission round -----------------------------------------------------------------------------------------


@describes("sglang.srt.mem_cache.radix_cache.TreeNode", "which part of a request's KV others hold too")
class TreeNode(Protocol):
    """A node of the prefix cache: some tokens, after those of its parent."""

    parent: TreeNode | None
    key: Sequence[int] | None


@describes(
    "sglang.srt.mem_cache.unified_cache.unified_tree_core_interface.TreePathNodeInfo", "the same in the unified cache"
)
class PathNode(Protocol):
    """A node on the way from the root to another."""

    node_id: int
    path_end: int


@describes(
    "sglang.srt.mem_cache.unified_cache.unified_tree_core_interface.UnifiedTreeCoreInterface",
    "which part of a request's KV others hold too",
)
class TreeCore(Protocol):
    """The tree of the unified prefix cache."""

    def collect_path_info(self, end_node_ids: Sequence[int]) -> Sequence[Sequence[PathNode]]:
        """Nodes that each of some requests holds."""
        raise NotImplementedError


@describes(
    "sglang.srt.mem_cache.unified_radix_cache.UnifiedRadixCache", "the prefix cache that a server has by default"
)
class UnifiedTreeCache(Protocol):
    """The unified prefix cache, whose nodes have numbers."""

    tree_core: TreeCore


@describes("sglang.srt.mem_cache.base_prefix_cache.BasePrefixCache", "can a preempted request's KV stay")
class TreeCache(Protocol):
    """The prefix cache."""

    def supports_mamba(self) -> bool:
        """Mamba state cannot be kept for a request that lost its slot."""
        raise NotImplementedError

    def supports_prefix_sharing(self) -> bool:
        """Without a radix cache nothing can be kept."""
        raise NotImplementedError


@describes("sglang.srt.mem_cache.prefill_budget.PrefillBudget", "give a victim's reserved tokens back to the budget")
class MemoryBudget(Protocol):
    """KV tokens that a round may still promise."""

    total_offset: float


@describes("sglang.srt.managers.schedule_policy.PrefillAdder", "the state of one admission round")
class PrefillAdder(Protocol):
    """One admission round. Its methods here are those that are called or overridden; see the table of targets."""

    running_batch: Batch
    memory_budget: MemoryBudget
    can_run_list: list[Req]
    preempt_list: list[Req]
    tree_cache: TreeCache
    rem_total_tokens: float
    per_req_token_overhead: int
    req_states: object

    @overridden
    def add_one_req(self, req: Req, has_chunked_req: bool, truncation_align_size: int | None) -> object:
        """Preempt and retry when KV is full, pass over what does not fit."""
        raise AssertionError("a subclass calls SGLang's own method")

    @overridden
    def preempt_to_schedule(self, req: Req) -> bool:
        """Preempt when slots are full."""
        raise AssertionError("a subclass calls SGLang's own method")

    def budget_state(self) -> object:
        """May another request be tried."""
        raise NotImplementedError

    @overridden
    def _get_running_request_total_token_offset(self, req: Req) -> float:
        """Reserve KV by the predicted length, and give a victim's reserve back."""
        raise AssertionError("a subclass calls SGLang's own method")

    def _lock_node(self, last_node: object, *, lock_host: bool = False) -> AbstractContextManager[None]:
        """Keep a candidate's cached prefix."""
        raise NotImplementedError

    def _swa_new_tokens(self, req: Req) -> int:
        """Tokens that a candidate needs for its output."""
        raise NotImplementedError

    def _request_slot_reserve_for_req(self, req: Req) -> int:
        """Tokens that its slot costs."""
        raise NotImplementedError

    def _mamba_gap_budget_for_req(self, req: Req, *, include_host_hit: bool) -> float:
        """Tokens that its Mamba state costs."""
        raise NotImplementedError


# --- the scheduler itself ----------------------------------------------------------------------------------------


@describes(
    "sglang.srt.managers.scheduler_components.metrics_reporter.SchedulerMetricsReporter", "count in one rank only"
)
class MetricsReporter(Protocol):
    """SGLang's own metrics of a scheduler process."""

    current_scheduler_metrics_enabled: bool


@describes("sglang.srt.managers.scheduler.Scheduler", "the scheduler's own state")
class Scheduler(Protocol):
    """One scheduler process."""

    schedule_policy: str
    max_running_requests: int
    schedule_low_priority_values_first: bool
    enable_priority_preemption: bool
    metrics_reporter: MetricsReporter
    tree_cache: TreeCache
    chunked_req: Req | None
    tokenizer: Tokenizer | None
    waiting_queue: list[Req]

    def collect_inflight_reqs(self) -> Iterable[Req]:
        """Forget running requests that it dropped."""
        raise NotImplementedError


@describes("sglang.srt.managers.io_struct.GetInternalStateReqOutput", "tell /server_info which policy ranks")
class InternalState(Protocol):
    """What a scheduler process says of itself in ``/server_info``."""

    internal_state: dict[str, object]


@describes(
    "sglang.srt.managers.scheduler_components.output_streamer.SchedulerOutputStreamer",
    "say that our fields go along with the answers",
)
class OutputStreamer(Protocol):
    """What sends answers to the tokenizer process."""

    has_additional_customized_info: bool

    @overridden
    def build_additional_customized_info(self, reqs: list[Req]) -> dict[str, list[object]]:
        """Send the fields of finished requests."""
        raise AssertionError("a subclass calls SGLang's own method")


# --- how the server was launched ---------------------------------------------------------------------------------


@describes("sglang.srt.arg_groups.fields.spec.Spec", "how this server drafts")
class SpeculationOptions(Protocol):
    """Options of speculative decoding, as SGLang resolved them."""

    speculative_algorithm: str | None
    speculative_draft_model_path: str | None
    speculative_num_draft_tokens: int | None
    speculative_num_steps: int | None
    speculative_eagle_topk: int | None


@describes("sglang.srt.arg_groups.fields.parallel.Parallel", "which ranks decide alike")
class ParallelOptions(Protocol):
    """Sizes of the parallel groups, and this process's place in them."""

    tp_size: int
    tp_rank: int
    attn_dp_size: int


@describes("sglang.srt.arg_groups.fields.exec_.ExecDeterministic", "nobody is preempted where every bit counts")
class DeterministicOptions(Protocol):
    """Options of deterministic inference."""

    enable_deterministic_inference: bool


@describes("sglang.srt.arg_groups.fields.exec_.ExecFeatures", "nobody is preempted where answers are watermarked")
class FeatureOptions(Protocol):
    """Options of what requests may ask for."""

    enable_watermark: bool


class ExecutionOptions(Protocol):
    """Options of how models run."""

    deterministic: DeterministicOptions
    features: FeatureOptions


@describes("sglang.srt.arg_groups.fields.serving.Serving", "the model's name in predictions and records")
class ServingOptions(Protocol):
    """Options of the HTTP server."""

    served_model_name: str


@describes("sglang.srt.arg_groups.fields.observability.Observability", "count only where the server exports metrics")
class ObservabilityOptions(Protocol):
    """Options of metrics and logs."""

    enable_metrics: bool
