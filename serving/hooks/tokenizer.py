"""The hooks in the process that tokenizes: predict once per request, and give the outcome back with the answer."""

import atexit
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from sglang.srt.managers.io_struct import GenerateReqInput
from sglang.srt.managers.utils import is_health_check_generate_req
from sglang.srt.runtime_context import get_observability, get_serving, get_spec

from laps_sd.data.meta_info import from_server_info
from laps_sd.predictors import PredictorBundle
from laps_sd.serving.hooks import install as hooking
from laps_sd.serving.hooks.targets import TOKENIZER_TARGETS
from laps_sd.serving.launch import Launch, load_bundle
from laps_sd.serving.metrics import TokenizerMetrics
from laps_sd.serving.names import META_KEY
from laps_sd.serving.refuse import refuse
from laps_sd.serving.tokenizer_side import ServerFacts, TokenizerSide

_side: TokenizerSide | None = None


def install(launch: Launch, args: Namespace) -> Launch:
    """Load the bundle and hook this process; return the options completed by what the bundle was fitted with.

    A second call replaces the first one's side.
    """
    global _side
    bundle = None if launch.bundle is None else load_bundle(launch.bundle)
    launch = with_fitted_posterior(launch, bundle, args)
    first = _side is None
    _side = TokenizerSide(bundle, launch, server_facts, server_metrics)
    atexit.register(_side.close)
    if first:
        hooking.register(TOKENIZER_TARGETS, HOOKS)
        hooking.apply()
    if absent := hooking.missing(TOKENIZER_TARGETS, HOOKS):
        refuse(f"another plugin holds {', '.join(absent)}; remove it (SGLANG_PLUGINS selects plugins by name)")
    return launch


def with_fitted_posterior(launch: Launch, bundle: PredictorBundle | None, args: Namespace) -> Launch:
    """Let the scheduler update acceptance with the constants that were fitted with the bundle's priors.

    An operator who sets ``policy.posterior`` is obeyed.
    """
    if bundle is None or "posterior" in launch.config.policy:
        return launch
    info = {**vars(args), "served_model_name": args.served_model_name or args.model_path}
    facts = ServerFacts(**from_server_info(info))
    fitted = bundle.posterior_settings(facts.draft, facts.max_correct_drafts, facts.model)
    if fitted is None:
        return launch
    policy = {**launch.config.policy, "posterior": asdict(fitted)}
    return replace(launch, config=launch.config.model_copy(update={"policy": policy}))


def server_facts() -> ServerFacts:
    """Model and draft of this server, as its records name them."""
    spec, serving = get_spec(), get_serving()
    info = {
        "served_model_name": serving.served_model_name,
        "speculative_algorithm": spec.speculative_algorithm,
        "speculative_draft_model_path": spec.speculative_draft_model_path,
        "speculative_num_draft_tokens": spec.speculative_num_draft_tokens,
        "speculative_num_steps": spec.speculative_num_steps,
        "speculative_eagle_topk": spec.speculative_eagle_topk,
    }
    return ServerFacts(**from_server_info(info))


def server_metrics() -> TokenizerMetrics | None:
    """Our metrics where the server exports any."""
    return TokenizerMetrics() if get_observability().enable_metrics else None


def create_tokenized_object(
    tokenized: Any, self: Any, obj: Any, input_text: str | None, input_ids: list[int] | None, *_rest: Any, **_named: Any
) -> None:
    """Hook after ``TokenizerManager._create_tokenized_object``; SGLang's health checks are nobody's workload."""
    if _side is None or not isinstance(obj, GenerateReqInput):
        return
    if is_health_check_generate_req(obj):  # told by the rid alone, which any client may choose
        _side.pass_by(tokenized)
    else:
        _side.on_tokenized(tokenized, self.tokenizer, obj, input_text, input_ids)


def update_request_meta_info(
    original: Callable[..., None],
    self: Any,
    meta_info: dict[str, Any],
    state: Any,
    customized_info: dict[str, Any],
    index: int,
    finish_reason: dict[str, Any] | None,
) -> None:
    """Hook around ``TokenizerManager.update_request_meta_info``."""
    ours = customized_info.get(META_KEY)
    if ours is not None:
        customized_info = {key: value for key, value in customized_info.items() if key != META_KEY}
    original(self, meta_info, state, customized_info, index, finish_reason)
    if ours is not None and ours[index] and _side is not None:
        _side.on_finished(meta_info, state.obj, ours[index][-1], finish_reason)


HOOKS: dict[str, Callable[..., Any]] = {
    "_create_tokenized_object": create_tokenized_object,
    "update_request_meta_info": update_request_meta_info,
}
