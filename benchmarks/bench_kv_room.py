"""What a round costs that looks for KV room and admits nobody, on one core.

    python benchmarks/bench_kv_room.py [--running N] [--context N] [--shared N] [--rounds N]

While KV tokens are short each candidate is weighed against running requests: what would they leave, if what others
share of their KV stays? A round asks that of ``--victims`` requests out of ``--running`` with ``--context`` tokens
each, of which all share the first ``--shared`` in the prefix cache that servers have by default. Printed are the median
and the worst round in microseconds of CPU time, read off the cache's nodes, and by comparing the tokens of all.
"""

import argparse
import random
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from types import SimpleNamespace
from typing import Any

from laps_sd.serving.cpu import launch


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--running", type=int, default=256)
    parser.add_argument("--context", type=int, default=32_000)
    parser.add_argument("--shared", type=int, default=24_000)
    parser.add_argument("--victims", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=50)
    args = parser.parse_args()
    with launch.importable():
        tree, reqs = running_requests(args.running, args.context, args.shared)
        rng = random.Random(0)  # noqa: S311 - test data
        for name, gains in (("nodes", by_nodes), ("tokens", by_tokens)):
            gains(tree, reqs, reqs[:1])  # imports
            times = [timed(gains, tree, reqs, rng.sample(reqs, args.victims)) for _ in range(args.rounds)]
            print(f"by {name:6}  median {median(times):9.0f} µs   worst {max(times):9.0f} µs")


def running_requests(count: int, context: int, shared: int) -> tuple[Any, list[Any]]:
    """A prefix cache, and requests whose prompts are in it."""
    import torch
    from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
    from sglang.srt.mem_cache.base_prefix_cache import InsertParams, MatchPrefixParams
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams
    from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
    from sglang.srt.mem_cache.radix_cache import RadixKey
    from sglang.srt.mem_cache.unified_cache.components import ComponentType
    from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

    params = CacheInitParams(
        disable=False, req_to_token_pool=ReqToTokenPool(8, 64, "cpu", False),
        token_to_kv_pool_allocator=TokenToKVPoolAllocator(64, torch.float32, "cpu", SimpleNamespace(), False),
        page_size=1, tree_components=(ComponentType.FULL,),
    )  # fmt: skip
    tree: Any = UnifiedRadixCache(params)
    common, reqs = array("q", range(shared)), []
    for i in range(count):
        tokens = common + array("q", [i]) + array("q", range(context - shared - 1))
        key = RadixKey(tokens)
        tree.insert(InsertParams(key=key, value=torch.zeros(len(tokens), dtype=torch.int64)))
        node = tree.match_prefix(MatchPrefixParams(key=key)).last_device_node
        reqs.append(SimpleNamespace(last_node=node, tokens=tokens))
    for i, req in enumerate(reqs):  # later ones split the node of the first
        reqs[i].last_node = tree.match_prefix(MatchPrefixParams(key=RadixKey(req.tokens))).last_device_node
    return tree, reqs


def timed(
    gains: Callable[[Any, list[Any], list[Any]], object], tree: Any, reqs: list[Any], victims: list[Any]
) -> float:
    """Microseconds of one round."""
    began = time.process_time()
    gains(tree, reqs, victims)
    return (time.process_time() - began) * 1e6


def by_nodes(tree: Any, reqs: list[Any], victims: list[Any]) -> list[int]:
    """Tokens that each victim shares, as an admission round asks."""
    from laps_sd.serving.hooks.shared_kv import SharedKv

    held, released, shared = SharedKv(tree, reqs), dict[int, int](), []
    for victim in victims:
        for node in held.nodes(victim):
            released[node] = released.get(node, 0) + 1
        shared.append(held.shared(victim, frozenset(), released))
    return shared


def by_tokens(_tree: Any, reqs: list[Any], victims: list[Any]) -> list[int]:
    """The same as it was before."""
    gone: list[Any] = []
    shared = []
    for victim in victims:
        gone.append(victim)
        shared.append(longest_shared(victim.tokens, (req.tokens for req in reqs if req not in gone)))
    return shared


def longest_shared(ids: Sequence[int], others: Iterable[Sequence[int]]) -> int:
    """Length of the longest prefix of ``ids`` that one of ``others`` has too."""
    best = 0
    for other in others:
        most = min(len(ids), len(other))
        if best < most and ids[: best + 1] == other[: best + 1]:
            low, high = best + 1, most
            while low < high:
                middle = (low + high + 1) // 2
                if ids[low:middle] == other[low:middle]:
                    low = middle
                else:
                    high = middle - 1
            best = low
    return best


if __name__ == "__main__":
    main()
