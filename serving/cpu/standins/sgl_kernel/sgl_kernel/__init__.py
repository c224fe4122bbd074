"""Stand-in for the CPU build of ``sgl_kernel``, in plain PyTorch.

Holds the operations that SGLang 0.5.23 reaches on a CPU without AMX for a dense model: the ``intel_amx`` attention
backend and the bookkeeping of NGRAM, STANDALONE and EAGLE decoding. Every other name fails with a clear message.

``torch.ops.sgl_kernel.convert_weight_packed`` must stay undefined: on a machine with AMX its presence makes SGLang
take the whole AMX path.
"""

from typing import NoReturn

from laps_sd.serving.cpu.guard import require_standin

require_standin("sgl_kernel")  # first: torch takes seconds to import

import torch  # noqa: E402

if torch.cuda.is_available():
    raise ImportError(
        "a GPU is visible to torch, so the CPU stand-in of laps-sd does not act; start SGLang itself "
        "(sglang serve), or hide the GPU (CUDA_VISIBLE_DEVICES=)",
        name="sgl_kernel",
    )

from . import _attention  # noqa: E402, F401  (registers torch.ops.sgl_kernel.*_attention_cpu)
from ._slots import (  # noqa: E402
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
)
from ._tree import build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu  # noqa: E402

__version__ = "0.0.0+laps.sd.standin"
IS_LAPS_SD_STANDIN = True
__all__ = [
    "IS_LAPS_SD_STANDIN",
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
]


def rotate_input_ids_cpu(*_: object, **__: object) -> NoReturn:
    """Multi-layer EAGLE only; SGLang imports the name always."""
    raise NotImplementedError("the CPU stand-in of laps-sd has no rotate_input_ids_cpu (multi-layer EAGLE)")


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(f"the CPU stand-in of laps-sd has no sgl_kernel.{name}: this path needs a real sgl-kernel")
