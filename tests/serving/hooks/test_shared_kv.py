"""Which part of a request's KV others hold too: the tree says what comparing all tokens would say."""

import random
from array import array
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


def make_tree(unified: bool) -> Any:
    import torch
    from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams
    from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
    from sglang.srt.mem_cache.radix_cache import RadixCache
    from sglang.srt.mem_cache.unified_cache.components import ComponentType
    from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

    cache = CacheInitParams(
        disable=False, req_to_token_pool=ReqToTokenPool(8, 64, "cpu", False),
        token_to_kv_pool_allocator=TokenToKVPoolAllocator(4096, torch.float32, "cpu", SimpleNamespace(), False),
        page_size=1, tree_components=(ComponentType.FULL,),
    )  # fmt: skip
    return UnifiedRadixCache(cache) if unified else RadixCache(cache)


def holder(tree: Any, tokens: list[int]) -> Any:
    """A request whose tokens are in the tree."""
    import torch
    from sglang.srt.mem_cache.base_prefix_cache import InsertParams, MatchPrefixParams
    from sglang.srt.mem_cache.radix_cache import RadixKey

    key = RadixKey(array("q", tokens))
    tree.insert(InsertParams(key=key, value=torch.arange(len(tokens))))
    return SimpleNamespace(last_node=tree.match_prefix(MatchPrefixParams(key=key)).last_device_node)


def in_common(first: list[int], second: list[int]) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )


@pytest.mark.parametrize("unified", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_what_stays_in_use_is_the_longest_prefix_that_somebody_who_stays_has(
    sglang: ModuleType, seed: int, unified: bool
) -> None:
    from laps_sd.serving.hooks.shared_kv import SharedKv, paths

    rng = random.Random(seed)
    tree = make_tree(unified)
    contents = [[rng.randrange(2) for _ in range(rng.randint(1, 9))] for _ in range(7)]
    reqs = [holder(tree, tokens) for tokens in contents]
    candidate, running = 0, range(1, 7)
    held = SharedKv(tree, [reqs[i] for i in running])
    stays = {node for node, _ in paths(tree, [reqs[candidate]])[0]}
    victims = rng.sample(running, 3)
    released: dict[int, int] = {}
    for i, victim in enumerate(victims):
        for node in held.nodes(reqs[victim]):
            released[node] = released.get(node, 0) + 1
        stayers = [candidate, *(j for j in running if j not in victims[: i + 1])]
        expected = max(in_common(contents[victim], contents[j]) for j in stayers)
        assert held.shared(reqs[victim], stays, released) == expected


@pytest.mark.parametrize("unified", [False, True])
def test_who_holds_nothing_shares_nothing(sglang: ModuleType, unified: bool) -> None:
    """Without a prefix cache a request has no node, and a session something else than a node."""
    from laps_sd.serving.hooks.shared_kv import SharedKv

    tree = make_tree(unified)
    req, other = SimpleNamespace(last_node=None), holder(tree, [1, 2, 3])
    held = SharedKv(tree, [req, other])
    assert list(held.nodes(req)) == []
    assert held.shared(req, frozenset(), {}) == 0
