"""Bookkeeping of KV slots in speculative decoding, in plain PyTorch.

``req_to_token`` [requests, context] maps (row of a request, position) to a KV slot. All functions write into
tensors that the caller allocated, as the compiled versions do; ``pool_len`` (the table's width) is not needed here.
"""

import ctypes

import torch
from torch import Tensor


def _ranges(start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Of the ragged ranges [start_i, end_i): the range number and the position of each element, both [total]."""
    start = start.to(torch.int64)
    lens = end.to(torch.int64) - start
    rows = torch.repeat_interleave(torch.arange(lens.numel()), lens)
    first = torch.cumsum(lens, 0) - lens
    return rows, torch.arange(rows.numel()) - first[rows] + start[rows]


def assign_req_to_token_pool_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Scatter: positions [start_i, end_i) of request i take the next slots of ``out_cache_loc``."""
    rows, positions = _ranges(start_offset, end_offset)
    requests = req_pool_indices.to(torch.int64)[rows]
    req_to_token[requests, positions] = out_cache_loc[: rows.numel()].to(req_to_token.dtype)


def assign_extend_cache_locs_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Gather: the slots of positions [start_i, end_i), one request after the other, into ``out_cache_loc``."""
    rows, positions = _ranges(start_offset, end_offset)
    requests = req_pool_indices.to(torch.int64)[rows]
    out_cache_loc[: rows.numel()] = req_to_token[requests, positions].to(out_cache_loc.dtype)


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    seq_lens: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
    topk: int,
    num_cols: int,
) -> None:
    """Gather the topk · num_cols slots that follow each request's committed tokens."""
    positions = seq_lens.to(torch.int64)[:, None] + torch.arange(topk * num_cols)[None, :]
    slots = req_to_token[req_pool_indices.to(torch.int64)[:, None], positions]
    out_cache_loc.view(-1)[: slots.numel()] = slots.reshape(-1).to(out_cache_loc.dtype)


def build_draft_decode_metadata_cpu(
    req_to_token: Tensor, req_pool_indices: Tensor, seq_lens: Tensor, topk: int, num_steps: int, pool_len: int
) -> Tensor:
    """Table [requests · topk, context] with one row per draft branch.

    A row holds the request's committed slots and then the branch's own ``num_steps`` slots; branch t owns the
    request's positions from seq_len + t · num_steps on.
    """
    table = req_to_token[req_pool_indices.to(torch.int64)]
    branches = table.repeat_interleave(topk, dim=0).contiguous()
    if topk > 1:
        for request, length in enumerate(seq_lens.tolist()):
            for branch in range(topk):
                own = table[request, length + branch * num_steps : length + (branch + 1) * num_steps]
                branches[request * topk + branch, length : length + own.numel()] = own
    return branches


def fill_bonus_tokens_cpu(accept_tokens: Tensor, accept_lens: Tensor, bonus_tokens: Tensor, accept_stride: int) -> None:
    """bonus_tokens[i]: the last accepted token of request i; ``accept_lens`` counts it."""
    last = torch.arange(accept_lens.numel()) * accept_stride + accept_lens.to(torch.int64) - 1
    bonus_tokens[: last.numel()] = accept_tokens.reshape(-1)[last].to(bonus_tokens.dtype)


def fill_accept_out_cache_loc_cpu(accept_index: Tensor, out_cache_loc: Tensor, accept_out_cache_loc: Tensor) -> None:
    """Compact the slots of the accepted nodes (the entries of ``accept_index`` that are not −1), in order."""
    nodes = accept_index.reshape(-1)
    nodes = nodes[nodes >= 0].to(torch.int64)
    accept_out_cache_loc[: nodes.numel()] = out_cache_loc[nodes].to(accept_out_cache_loc.dtype)


def copy_all_layer_kv_cache_cpu(data_ptrs: Tensor, strides: Tensor, tgt_loc: Tensor, src_loc: Tensor) -> None:
    """Copy row src_loc[j] to row tgt_loc[j] in every buffer; all rows are read before any is written.

    Buffers are given as the compiled operation takes them: address and row size in bytes.
    """
    sources, targets = src_loc.tolist(), tgt_loc.tolist()
    for base, row in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        held = [ctypes.string_at(base + slot * row, row) for slot in sources]
        for slot, data in zip(targets, held, strict=True):
            ctypes.memmove(base + slot * row, data, row)
