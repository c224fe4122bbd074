"""The hooks in the process that tokenizes: predict once per request, and give the outcome back with the answer."""

import atexit
import logging
import shutil
import tempfile
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import cast

from sglang.srt.managers.io_struct import GenerateReqInput
from sglang.srt.managers.utils import is_health_check_generate_req
from sglang.srt.runtime_context import get_observability, get_serving, get_spec

from laps_sd.data.meta_info import from_server_info
from laps_sd.predictors import PredictorBundle
from laps_sd.serving.engine import (
    Abort,
    FinishReason,
    MetaInfo,
    ObservabilityOptions,
    ReceivedRequest,
    RequestInTokenizer,
    ServingOptions,
    SpeculationOptions,
    TokenizedRequest,
    TokenizerManager,
)
from laps_sd.serving.failure_log import FailureLog
from laps_sd.serving.flags import META_KEY
from laps_sd.serving.hooks.guard import guarded
from laps_sd.serving.hooks.registration import Hooks, apply_hooks, register_hooks, require_hooks
from laps_sd.serving.hooks.targets import TOKENIZER_TARGETS
from laps_sd.serving.launch import Launch, load_served
from laps_sd.serving.monitoring.metrics import TokenizerMetrics
from laps_sd.serving.requests.exchange import Attachment, ResponseFields, attach, detach_from_abort
from laps_sd.serving.requests.record import ServerFacts
from laps_sd.serving.requests.tokenizer_side import TokenizerSide

logger = logging.getLogger(__name__)

FALLEN_BACK = Attachment(fallen_back=True)


class TokenizerHooks:
    """The hooks of the process that tokenizes. Until `install` they do nothing.

    Attributes
    ----------
    side : TokenizerSide or None
        Predicts, and closes the loop when a request ends.
    stood_down : str or None
        The hook whose failure ended that, for good.
    table : mapping
        Every hook by the name of the function that it hooks.
    """

    def __init__(self) -> None:
        self.side: TokenizerSide | None = None
        self.stood_down: str | None = None
        self._hooked = False
        self._later_failures = FailureLog(logger, "a hook failed again after the server went back to fcfs")
        hooks: dict[str, Callable[..., object]] = {
            "_create_tokenized_object": self.create_tokenized_object,
            "update_request_meta_info": self.update_request_meta_info,
            "_handle_abort_req": self.handle_abort_req,
        }
        # Kept here because a method is a new object each time it is looked up, and SGLang's chain is searched by it.
        self.table: Hooks = guarded(TOKENIZER_TARGETS, hooks, self.fall_back)

    def install(self, launch: Launch, args: Namespace) -> Launch:
        """Load the bundle and hook this process; return the options completed by what the bundle was fitted with.

        A second call replaces the first one's side.
        """
        bundle, launch = load_served(launch)
        launch = with_refinement(with_fitted_posterior(launch, bundle, args), bundle)
        self.side, self.stood_down = TokenizerSide(bundle, launch, server_facts, server_metrics), None
        atexit.register(self.side.close)
        if not self._hooked:
            self._hooked = True
            register_hooks(TOKENIZER_TARGETS, self.table)
            apply_hooks()
        require_hooks(TOKENIZER_TARGETS, self.table)
        return launch

    def uninstall(self) -> None:
        """Do nothing from now on: the server of this process has ended, or the next one does without."""
        side, self.side, self.stood_down = self.side, None, None
        if side is not None:
            side.close()
            atexit.unregister(side.close)

    def fall_back(self, name: str, error: Exception) -> None:
        """Predict and record nothing from now on, because a hook raised; never raises.

        Every request that comes tells the scheduler processes to schedule with fcfs.
        """
        side, self.side = self.side, None
        if side is None:
            self._later_failures.note(error)
            return
        self.stood_down = name
        logger.error(
            "laps-sd: the hook %s failed (%s: %s); this server schedules with fcfs and records nothing from now on",
            name, type(error).__name__, error, exc_info=error,
        )  # fmt: skip
        side.stand_down(name)

    def create_tokenized_object(
        self,
        tokenized: TokenizedRequest,
        manager: TokenizerManager,
        obj: ReceivedRequest,
        input_text: str | None,
        input_ids: Sequence[int] | None,
        *_rest: object,
        **_named: object,
    ) -> None:
        """Run after ``TokenizerManager._create_tokenized_object``; SGLang's health checks are nobody's workload."""
        if not isinstance(obj, GenerateReqInput):
            return
        if self.side is None:
            if self.stood_down is not None:
                attach(tokenized.sampling_params, FALLEN_BACK)
            return
        try:
            if is_health_check_generate_req(obj):  # told by the rid alone, which any client may choose
                self.side.pass_by(tokenized)
            else:
                self.side.on_tokenized(tokenized, manager.tokenizer, obj, input_text, input_ids)
        except Exception:
            attach(tokenized.sampling_params, FALLEN_BACK)  # in place of what is half done, or what a client forged
            raise

    def update_request_meta_info(
        self,
        original: Callable[..., None],
        manager: TokenizerManager,
        meta_info: MetaInfo,
        state: RequestInTokenizer,
        customized_info: dict[str, list[list[object]]],
        index: int,
        finish_reason: FinishReason | None,
    ) -> None:
        """Wrap ``TokenizerManager.update_request_meta_info``."""
        ours = customized_info.get(META_KEY)
        if ours is not None:
            customized_info = {key: value for key, value in customized_info.items() if key != META_KEY}
        original(manager, meta_info, state, customized_info, index, finish_reason)
        if ours is not None and ours[index] and self.side is not None:
            self.side.on_finished(meta_info, state.obj, cast(ResponseFields, ours[index][-1]), finish_reason)

    def handle_abort_req(self, original: Callable[..., None], manager: TokenizerManager, recv_obj: Abort) -> None:
        """Hook around ``TokenizerManager._handle_abort_req``: the request ended outside of the stream of answers."""
        fields = detach_from_abort(recv_obj)
        found = None if fields is None else manager.rid_to_state.get(recv_obj.rid)
        original(manager, recv_obj)
        if found is None:
            return
        state: RequestInTokenizer = found
        if state.out_list:
            state.out_list[-1]["meta_info"][META_KEY] = fields


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


def with_refinement(launch: Launch, bundle: PredictorBundle | None) -> Launch:
    """Leave what the bundle learned of refining lengths where the scheduler processes of this node read it.

    They must not look into the bundle themselves: its name may mean another one by then.
    """
    known = None if bundle is None else bundle.refinement
    if known is None or not launch.config.refinement.enabled or not launch.config.settings().refine:
        return launch
    folder = tempfile.mkdtemp(prefix="laps-sd-refinement-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return replace(launch, refinement=str(known.save(Path(folder) / "refinement")))


def server_facts() -> ServerFacts:
    """Return model and draft of this server, as its records name them."""
    spec: SpeculationOptions = get_spec()
    serving: ServingOptions = get_serving()
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
    """Return our metrics where the server exports any."""
    observability: ObservabilityOptions = get_observability()
    return TokenizerMetrics() if observability.enable_metrics else None


#: The hooks of this process.
HOOKS = TokenizerHooks()
