"""Which part of a request's KV others hold too: read off the prefix cache, without looking at any token.

Requests share KV only through nodes of the prefix cache. What one produced since its prefill is its own.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import cast

from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

from laps_sd.serving.engine import PathNode, Req, TreeCache, TreeNode, UnifiedTreeCache

#: A node of the prefix cache, and how many tokens there are from the root to its end.
Step = tuple[int, int]


class SharedKv:
    """Who holds which nodes of the prefix cache; good until somebody gets or loses a slot.

    Parameters
    ----------
    tree : TreeCache
        The prefix cache, or what stands in its place.
    reqs : sequence of Req
        Those with a slot.
    """

    def __init__(self, tree: TreeCache, reqs: Sequence[Req]) -> None:
        self._paths = dict(zip(map(id, reqs), paths(tree, reqs), strict=True))
        self._holders = Counter(node for path in self._paths.values() for node, _ in path)

    def nodes(self, req: Req) -> Iterable[int]:
        """Nodes that a request with a slot holds."""
        return (node for node, _ in self._paths[id(req)])

    def shared(self, req: Req, stays: Set[int], released: Mapping[int, int]) -> int:
        """Tokens at the start of ``req`` whose KV stays in use when it goes.

        Parameters
        ----------
        stays : set of int
            Nodes that a request without a slot holds, for which room is made.
        released : mapping of int to int
            By node, how many of those that go hold it, ``req`` included.
        """
        for node, end in reversed(self._paths[id(req)]):  # what is before a shared node is shared too
            if node in stays or self._holders[node] > released.get(node, 0):
                return end
        return 0


def paths(tree: TreeCache, reqs: Sequence[Req]) -> list[list[Step]]:
    """Nodes of the prefix cache that each request holds, from the first to the last, the root left out."""
    if not isinstance(tree, UnifiedRadixCache):
        return [_walk(req) for req in reqs]
    unified = cast(UnifiedTreeCache, tree)
    known = [req.last_node for req in reqs if isinstance(req.last_node, int)]  # sessions have something else there
    found = iter(unified.tree_core.collect_path_info(known))
    return [_ends(next(found)) if isinstance(req.last_node, int) else [] for req in reqs]


def _ends(path: Sequence[PathNode]) -> list[Step]:
    return [(node.node_id, node.path_end) for node in path]


def _walk(req: Req) -> list[Step]:
    lengths = []
    node = cast(TreeNode | None, req.last_node)
    while node is not None and node.parent is not None:
        lengths.append((id(node), len(node.key or ())))
        node = node.parent
    path, end = list[Step](), 0
    for number, length in reversed(lengths):
        end += length
        path.append((number, end))
    return path
