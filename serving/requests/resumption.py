"""Which requests give the answer that they would have given anyway after they lost their slot: one table.

A request that resumes is prefilled again from its prompt and its answer so far. What SGLang keeps elsewhere (counts of
penalties, rows of hidden states, the state of a logit processor) may be lost on the way. Who cannot resume exactly is
never preempted; SGLang's own retraction cannot be refused, so such requests are retracted last.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from laps_sd.serving.engine import Req, SamplingParams

Verdict = Literal["yes", "restored", "no"]


@dataclass(frozen=True, slots=True)
class ServerTraits:
    """What decides about every request of a server alike.

    Attributes
    ----------
    speculative : bool
        It verifies drafts.
    deterministic : bool
        ``--enable-deterministic-inference``.
    watermarks : bool
        ``--enable-watermark``.
    """

    speculative: bool = False
    deterministic: bool = False
    watermarks: bool = False


@dataclass(frozen=True, slots=True)
class Feature:
    """What a request may ask for, and whether it then resumes exactly.

    Attributes
    ----------
    key : str
        Short name, for the tests.
    name : str
        As clients and operators write it (Markdown).
    verdict : str
        ``yes``, ``restored`` (we bring back what SGLang forgets) or ``no`` (never preempted).
    because : str
        Why.
    seen : str
        ``run``: preempted requests are compared with undisturbed ones on a real server. ``read``: read from SGLang's
        code, because it does not run on a CPU or nothing can be compared.
    used : callable or None
        Whether this request uses it. None where nothing hangs on it: the verdict is yes.
    """

    key: str
    name: str
    verdict: Verdict
    because: str
    seen: Literal["run", "read"]
    used: Callable[[Req, ServerTraits], bool] | None = None


def has_penalties(params: SamplingParams) -> bool:
    """Whether SGLang counts the tokens of the answer to decide about the next one."""
    return bool(
        params.frequency_penalty != 0
        or params.presence_penalty != 0
        or params.repetition_penalty != 1
        or params.min_new_tokens > 0
    )


def _counts_tokens(req: Req, server: ServerTraits) -> bool:
    return not server.speculative and has_penalties(req.sampling_params)


def _counts_steps(req: Req, server: ServerTraits) -> bool:
    return server.speculative and has_penalties(req.sampling_params)


def _wants_hidden_states(req: Req, _: ServerTraits) -> bool:
    return bool(req.return_hidden_states)


def _has_processor(req: Req, _: ServerTraits) -> bool:
    return req.custom_logit_processor is not None


def _wants_experts(req: Req, _: ServerTraits) -> bool:
    return req.return_routed_experts or req.return_indexer_topk


def _sees_or_hears(req: Req, _: ServerTraits) -> bool:
    return req.multimodal_inputs is not None


def _embeds(req: Req, _: ServerTraits) -> bool:
    given = (req.input_embeds, req.positional_embed_overrides, req.token_type_ids)
    return any(value is not None for value in given)


def _has_beams(req: Req, _: ServerTraits) -> bool:
    return req.beam_group is not None


def _has_session(req: Req, _: ServerTraits) -> bool:
    return req.session is not None or req.session_generation is not None


def _is_deterministic(_: Req, server: ServerTraits) -> bool:
    return server.deterministic


def _is_watermarked(_: Req, server: ServerTraits) -> bool:
    return server.watermarks


FEATURES = (
    Feature(
        "plain",
        "plain answers, streamed or not: `stop`, `stop_token_ids`, `no_stop_trim`, `ignore_eos`, `logit_bias`, `n`",
        "yes",
        "SGLang keeps the tokens of a request that lost its slot, and the rest follows from them",
        "run",
    ),
    Feature(
        "logprobs",
        "`return_logprob`, `logprob_start_len`, `top_logprobs_num`, `token_ids_logprob`",
        "yes",
        "those of the prompt are computed once and those of the answer kept; equal but for rounding",
        "run",
    ),
    Feature(
        "grammar",
        "`regex`, `json_schema`, `ebnf`",
        "yes",
        "the state of the grammar stays with the request and moves with its tokens only",
        "run",
    ),
    Feature("sampling mask", "`return_sampling_mask`", "yes", "one row a token, kept like the tokens", "run"),
    Feature(
        "temperature",
        "`temperature` above 0",
        "yes",
        "chance decides with or without a preemption, by the same odds",
        "read",
    ),
    Feature(
        "lora",
        "LoRA adapters",
        "yes",
        "the adapter belongs to the request, and so do the cached tokens; SGLang's LoRA does not start on a CPU",
        "read",
    ),
    Feature(
        "penalties",
        "`frequency_penalty`, `presence_penalty`, `repetition_penalty`, `min_new_tokens` without drafts",
        "restored",
        "SGLang begins to count at zero again; we count the answer so far, also after SGLang's own retraction, "
        "which has the same fault",
        "run",
        _counts_tokens,
    ),
    Feature(
        "penalties with drafts",
        "the same four with drafts",
        "no",
        "SGLang counts one token of each verify step, so the answer depends on where steps begin",
        "run",
        _counts_steps,
    ),
    Feature(
        "hidden states",
        "`return_hidden_states`",
        "no",
        "where an answer resumes SGLang returns a block of rows in place of a row, after its own retraction too",
        "run",
        _wants_hidden_states,
    ),
    Feature(
        "logit processor",
        "`custom_logit_processor`",
        "no",
        "it may keep a state of its own, and a new one is made where the request resumes; after a retraction too",
        "run",
        _has_processor,
    ),
    Feature(
        "experts",
        "`return_routed_experts`, `return_indexer_topk`",
        "no",
        "kept by KV slot, which may be given away meanwhile; no model here that has experts",
        "read",
        _wants_experts,
    ),
    Feature(
        "multimodal",
        "images, audio, video",
        "no",
        "SGLang extends their positions at every attempt to resume; no such model here",
        "read",
        _sees_or_hears,
    ),
    Feature(
        "embeddings",
        "`input_embeds`, embedding overrides, token types",
        "no",
        "they cannot be joined with the tokens of the answer; SGLang starts such an answer anew",
        "read",
        _embeds,
    ),
    Feature(
        "beams",
        "beam search",
        "no",
        "its beams share one state; SGLang aborts it instead of retracting it",
        "read",
        _has_beams,
    ),
    Feature(
        "sessions",
        "sessions",
        "no",
        "their KV belongs to the session",
        "read",
        _has_session,
    ),
    Feature(
        "deterministic",
        "every request under `--enable-deterministic-inference`",
        "no",
        "the token at which an answer resumes is computed by another kernel, which need not round alike; "
        "it does not run on a CPU",
        "read",
        _is_deterministic,
    ),
    Feature(
        "watermark",
        "every request under `--enable-watermark`",
        "no",
        "the watermark's context is kept by slot; not run here",
        "read",
        _is_watermarked,
    ),
)


def obstacle(req: Req, server: ServerTraits) -> Feature | None:
    """What keeps this request from resuming exactly; None when it can.

    Ask when the request gets its first slot: only then is all of it set, and nothing of it changes later.
    """
    for feature in FEATURES:
        if feature.verdict == "no" and feature.used is not None and feature.used(req, server):
            return feature
    return None


def as_markdown() -> str:
    """The table of docs/serving.md, one line a feature."""
    seen = {"run": "compared on a server", "read": "read in the code"}
    lines = ["| the request uses | resumes exactly | because | known from |", "|---|---|---|---|"]
    for feature in FEATURES:
        verdict = {"yes": "yes", "restored": "yes, restored", "no": "no: never preempted"}[feature.verdict]
        lines.append(f"| {feature.name} | {verdict} | {feature.because} | {seen[feature.seen]} |")
    return "\n".join(lines)
