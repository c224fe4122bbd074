"""SGLang plugin that lets SGLang's own CPU attention backend run on a machine without AMX.

Entry point ``laps_sd_cpu`` of the group ``sglang.srt.plugins``. Every SGLang process of this environment calls
:func:`activate`; it does nothing unless the CPU launcher started the process.
"""

import pkgutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from laps_sd.serving.cpu import guard
from laps_sd.serving.flags import SUPPORTED_SGLANG
from laps_sd.serving.termination.refuse import refuse

if TYPE_CHECKING:
    from torch import Tensor

FALLBACK = "sglang.srt.arg_groups.overrides._attention_backend_platform_fallbacks"
LAST_LOC = "sglang.srt.mem_cache.allocation.get_last_loc"


def activate() -> None:
    """Register the two patches; where that is impossible, end the server with one sentence."""
    if not guard.active():
        return
    try:
        import sgl_kernel
    except ImportError as error:
        refuse(str(error))
    if not getattr(sgl_kernel, "IS_LAPS_SD_STANDIN", False):
        refuse(
            f"the CPU stand-in is asked for, but sgl_kernel is a real build ({sgl_kernel.__file__}); "
            "start SGLang itself instead (sglang serve)"
        )
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    # The registry only logs a target that is not there; look first.
    for target in (FALLBACK, LAST_LOC):
        try:
            pkgutil.resolve_name(target)
        except (ImportError, AttributeError):
            refuse(
                f"this SGLang has no {target}, which the CPU stand-in patches; install sglang=={SUPPORTED_SGLANG[-1]}"
            )
    HookRegistry.register(FALLBACK, keep_intel_amx, HookType.AROUND)
    HookRegistry.register(LAST_LOC, last_slots, HookType.AROUND)


class LaunchView(Protocol):
    """The part of SGLang's launch options that its fallback looks at."""

    device: str
    attention_backend: str


def keep_intel_amx(original: Callable[[LaunchView], dict[str, object]], view: LaunchView) -> dict[str, object]:
    """Keep the ``intel_amx`` attention backend where SGLang would fall back to ``torch_native``.

    SGLang falls back because its compiled operations need AMX. The stand-in's do not, and ``torch_native`` can
    neither verify drafts nor draft.
    """
    if view.device == "cpu" and view.attention_backend == "intel_amx":
        return {}
    return original(view)


def last_slots(
    original: "Callable[..., Tensor]", req_to_token: "Tensor", req_pool_indices: "Tensor", prefix_lens: "Tensor"
) -> "Tensor":
    """KV slot of the last prefix token of each request, −1 where there is none; SGLang would launch a Triton kernel.

    Reached with a page size above 1 only. The parameters are tensors: the table [requests, context] of slots, and
    per request its row and its prefix length in tokens.
    """
    import torch

    if req_to_token.device.type != "cpu":
        return original(req_to_token, req_pool_indices, prefix_lens)
    slots = req_to_token[req_pool_indices, (prefix_lens - 1).clamp(min=0)].to(prefix_lens.dtype)
    return torch.where(prefix_lens > 0, slots, torch.full_like(slots, -1))
