"""Attention over the paged KV cache, in plain PyTorch, as ``torch.ops.sgl_kernel`` operations.

Shapes: ``q`` [tokens, heads, dim]; caches [slots, kv_heads, dim]; ``req_to_token`` [requests, context] holds the KV
slot of each position. ``seq_lens`` (tokens) counts everything a request's last query may see, itself included.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

_LIBRARY = torch.library.Library("sgl_kernel", "FRAGMENT")
_LIBRARY.define(
    "decode_attention_cpu(Tensor q, Tensor(a!) k_cache, Tensor(b!) v_cache, float k_scale, "
    "float v_scale, Tensor(c!) out, Tensor? k, Tensor? v, Tensor loc, Tensor attn_logits, "
    "Tensor req_to_token, Tensor req_pool_indices, Tensor seq_lens, float sm_scale, "
    "float logit_cap, bool is_cross_attn, int window, Tensor? encoder_lens, Tensor? sinks) -> ()"
)
_LIBRARY.define(
    "extend_attention_cpu(Tensor q, Tensor? k, Tensor? v, Tensor(a!) out, Tensor k_cache, "
    "Tensor v_cache, float k_scale, float v_scale, Tensor req_to_token, Tensor req_pool_indices, "
    "Tensor seq_lens, Tensor extend_seq_lens, Tensor extend_start_loc, int max_extend_len, "
    "float sm_scale, float logit_cap, bool is_cross_attn, int window, Tensor? encoder_lens, "
    "Tensor? sinks, Tensor? tree_mask, bool is_causal) -> ()"
)


def _refuse(
    scales: tuple[float, float],
    logit_cap: float,
    is_cross_attn: bool,
    window: int,
    encoder_lens: Tensor | None,
    sinks: Tensor | None,
) -> None:
    """Raise for what the stand-in does not compute, rather than compute something else."""
    lacking = {
        "scaled (fp8) KV cache": scales != (1.0, 1.0),
        "logit soft cap": logit_cap > 0,
        "cross attention": is_cross_attn or encoder_lens is not None,
        "sliding window": window > 0,
        "attention sinks": sinks is not None,
    }
    if any(lacking.values()):
        names = ", ".join(name for name, asked in lacking.items() if asked)
        raise NotImplementedError(f"the CPU stand-in of laps-sd has no {names}")


def _attend(q: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Softmax attention of q [B, Q, H, D] to the cached slots [B, L]; mask [B, Q, L] or None → [B, Q, H, D].

    The query heads that share a KV head are folded into the query axis, so that keys and values are gathered once
    and never repeated per query head: they are the larger part of the memory traffic.
    """
    batch, queries, heads, dim = q.shape
    kv_heads = k_cache.shape[1]
    shared = heads // kv_heads
    flat = slots.reshape(-1)
    k, v = (
        # As a matrix with one row per slot: index_select copies whole rows then, ten times faster.
        cache.view(len(cache), -1).index_select(0, flat).view(batch, -1, kv_heads, cache.shape[-1]).transpose(1, 2)
        for cache in (k_cache, v_cache)
    )
    folded = q.view(batch, queries, kv_heads, shared, dim).permute(0, 2, 1, 3, 4)
    folded = folded.reshape(batch, kv_heads, queries * shared, dim)
    if mask is not None:
        mask = mask.repeat_interleave(shared, dim=1).unsqueeze(1)
    out = F.scaled_dot_product_attention(folded, k.to(q.dtype), v.to(q.dtype), attn_mask=mask, scale=scale)
    out = out.view(batch, kv_heads, queries, shared, -1).permute(0, 2, 1, 3, 4)
    return out.reshape(batch, queries, heads, -1)


def _slots_of(req_to_token: Tensor, rows: Tensor, seq_lens: Tensor) -> tuple[Tensor, Tensor]:
    """KV slots [B, longest] of the requests and which of them are in use (the rest of the table is stale)."""
    longest = int(seq_lens.max())
    used = torch.arange(longest)[None, :] < seq_lens[:, None]
    slots = req_to_token[rows.to(torch.int64), :longest].to(torch.int64)
    return slots.where(used, slots[:, :1]), used  # any slot with finite values: the mask drops it


def _decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k_scale: float,
    v_scale: float,
    out: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    loc: Tensor,
    attn_logits: Tensor,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    window: int,
    encoder_lens: Tensor | None,
    sinks: Tensor | None,
) -> None:
    """Store one new token per request at ``loc``, then attend with its query. ``attn_logits`` is scratch, unused."""
    _refuse((k_scale, v_scale), logit_cap, is_cross_attn, window, encoder_lens, sinks)
    if k is not None and v is not None:
        k_cache[loc] = k.view(-1, *k_cache.shape[1:]).to(k_cache.dtype)
        v_cache[loc] = v.view(-1, *v_cache.shape[1:]).to(v_cache.dtype)
    slots, used = _slots_of(req_to_token, req_pool_indices, seq_lens)
    mask = used.unsqueeze(1) if len(seq_lens) > 1 else None
    attended = _attend(q.unsqueeze(1), k_cache, v_cache, slots, mask, sm_scale)
    out.copy_(attended.view(out.shape))


def _extend(
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    out: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k_scale: float,
    v_scale: float,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    extend_seq_lens: Tensor,
    extend_start_loc: Tensor,
    max_extend_len: int,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    window: int,
    encoder_lens: Tensor | None,
    sinks: Tensor | None,
    tree_mask: Tensor | None,
    is_causal: bool,
) -> None:
    """Attend with the last ``extend_seq_lens`` tokens of each request, whose keys and values are stored already.

    The prefix is visible to all of them; among themselves they see what ``tree_mask`` (flat, one [n, n] block per
    request, true: visible) says, else the earlier ones and themselves.
    """
    _refuse((k_scale, v_scale), logit_cap, is_cross_attn, window, encoder_lens, sinks)
    lens = extend_seq_lens.tolist()
    # The blocks of a verify step are equally long: one batched call. Prompts are not: one call each.
    groups = [slice(0, len(lens))] if len(set(lens)) == 1 else [slice(i, i + 1) for i in range(len(lens))]
    first_query = first_bit = 0
    for group in groups:
        count, n = len(lens[group]), lens[group.start]
        queries = slice(first_query, first_query + count * n)
        first_query = queries.stop
        own = None
        if tree_mask is not None:
            own = tree_mask[first_bit : first_bit + count * n * n].view(count, n, n)
            first_bit += count * n * n
        if n == 0:
            continue
        slots, used = _slots_of(req_to_token, req_pool_indices[group], seq_lens[group])
        mask = _extend_mask(used, seq_lens[group], n, own, is_causal)
        block = q[queries].view(count, n, *q.shape[1:])
        attended = _attend(block, k_cache, v_cache, slots, mask, sm_scale)
        out[queries] = attended.view(-1, *out.shape[1:])


def _extend_mask(used: Tensor, seq_lens: Tensor, n: int, own: Tensor | None, is_causal: bool) -> Tensor:
    """Visibility [B, n, L] of each request's positions to its last n tokens."""
    if own is None and not is_causal:
        return used.unsqueeze(1).expand(-1, n, -1)
    longest = used.shape[1]
    query_at = seq_lens[:, None] - n + torch.arange(n)  # [B, n], position of each query
    if own is None:
        return torch.arange(longest) <= query_at[:, :, None]
    mask = (torch.arange(longest) < (seq_lens - n)[:, None])[:, None, :].repeat(1, n, 1)
    mask.scatter_(2, query_at[:, None, :].expand(-1, n, -1), own.bool())
    return mask


_LIBRARY.impl("decode_attention_cpu", _decode, "CPU")
_LIBRARY.impl("extend_attention_cpu", _extend, "CPU")
