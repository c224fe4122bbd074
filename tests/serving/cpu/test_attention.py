"""The stand-in's attention against a dense reference that knows neither pages, batches nor grouped heads."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from laps_sd.serving.cpu import launch

HEADS, KV_HEADS, DIM, SLOTS, CONTEXT = 6, 2, 4, 64, 32


@pytest.fixture(scope="module", autouse=True)
def standin() -> None:
    with launch.importable():
        import sgl_kernel

    assert sgl_kernel.IS_LAPS_SD_STANDIN


class Cache:
    """A KV cache whose requests lie in random slots; every slot that no request owns holds NaN."""

    def __init__(self, seq_lens: list[int], seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.seq_lens = torch.tensor(seq_lens)
        self.rows = torch.randperm(8, generator=draw)[: len(seq_lens)].to(torch.int32)
        free = (torch.randperm(SLOTS - 1, generator=draw) + 1).tolist()
        # Entries past a request's end are stale: they point at slots of others.
        self.req_to_token = torch.randint(0, SLOTS, (8, CONTEXT), generator=draw, dtype=torch.int32)
        self.k = torch.full((SLOTS, KV_HEADS, DIM), math.nan)
        self.v = torch.full((SLOTS, KV_HEADS, DIM), math.nan)
        self.owned: list[list[int]] = []
        for row, length in zip(self.rows.tolist(), seq_lens, strict=True):
            slots = [free.pop() for _ in range(length)]
            self.req_to_token[row, :length] = torch.tensor(slots, dtype=torch.int32)
            self.owned.append(slots)
            self.k[slots] = torch.randn(length, KV_HEADS, DIM, generator=draw)
            self.v[slots] = torch.randn(length, KV_HEADS, DIM, generator=draw)
        self.draw = draw

    def queries(self, n: int) -> Tensor:
        return torch.randn(n, HEADS, DIM, generator=self.draw)


def reference(cache: Cache, request: int, q: Tensor, visible: list[int], scale: float) -> Tensor:
    """Attention of one query [heads, dim] to the request's ``visible`` positions, head by head."""
    slots = [cache.owned[request][position] for position in visible]
    out = torch.empty_like(q)
    for head in range(HEADS):
        kv = head // (HEADS // KV_HEADS)
        weights = torch.softmax(cache.k[slots, kv] @ q[head] * scale, dim=0)
        out[head] = weights @ cache.v[slots, kv]
    return out


def extend(cache: Cache, q: Tensor, new: list[int], tree_mask: Tensor | None = None, *, causal: bool = True) -> Tensor:
    out = torch.empty_like(q)
    lens = torch.tensor(new, dtype=torch.int32)
    torch.ops.sgl_kernel.extend_attention_cpu(
        *(q, None, None, out, cache.k, cache.v, 1.0, 1.0, cache.req_to_token, cache.rows, cache.seq_lens),
        *(lens, torch.cumsum(lens, 0) - lens, max(new), 0.5, 0.0, False, 0, None, None, tree_mask, causal),
    )
    return out


lengths = st.lists(st.integers(1, 12), min_size=1, max_size=4)


@given(lengths, st.integers(0, 999))
@settings(deadline=None, max_examples=40)
def test_decode_stores_the_new_token_and_attends_to_all_so_far(seq_lens: list[int], seed: int) -> None:
    cache = Cache(seq_lens, seed)
    q = cache.queries(len(seq_lens))
    last = torch.tensor([slots[-1] for slots in cache.owned])
    k, v = cache.k[last].clone(), cache.v[last].clone()
    cache.k[last] = cache.v[last] = math.nan  # the operation itself must store them
    out = torch.empty_like(q)
    torch.ops.sgl_kernel.decode_attention_cpu(
        *(q, cache.k, cache.v, 1.0, 1.0, out, k, v, last, torch.empty(0), cache.req_to_token, cache.rows),
        *(cache.seq_lens, 0.5, 0.0, False, 0, None, None),
    )
    for i, length in enumerate(seq_lens):
        torch.testing.assert_close(out[i], reference(cache, i, q[i], list(range(length)), 0.5))


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 5)), min_size=1, max_size=4), st.integers(0, 999))
@settings(deadline=None, max_examples=40)
def test_extend_is_causal_behind_a_visible_prefix(requests: list[tuple[int, int]], seed: int) -> None:
    requests = [(prefix, new if prefix else max(new, 1)) for prefix, new in requests]
    cache = Cache([prefix + new for prefix, new in requests], seed)
    q = cache.queries(sum(new for _, new in requests))
    out = extend(cache, q, [new for _, new in requests])
    at = 0
    for i, (prefix, new) in enumerate(requests):
        for j in range(new):
            torch.testing.assert_close(out[at], reference(cache, i, q[at], list(range(prefix + j + 1)), 0.5))
            at += 1


@given(st.lists(st.integers(0, 8), min_size=1, max_size=4), st.integers(1, 6), st.integers(0, 999))
@settings(deadline=None, max_examples=40)
def test_verify_lets_a_draft_token_see_the_prefix_and_its_ancestors(prefixes: list[int], n: int, seed: int) -> None:
    cache = Cache([prefix + n for prefix in prefixes], seed)
    q = cache.queries(n * len(prefixes))
    parents = [[-1, *(int(torch.randint(0, i, (), generator=cache.draw)) for i in range(1, n))] for _ in prefixes]
    paths = [[_path(tree, node) for node in range(n)] for tree in parents]
    mask = torch.zeros(len(prefixes), n, n, dtype=torch.bool)
    for i, tree in enumerate(paths):
        for node, path in enumerate(tree):
            mask[i, node, path] = True
    out = extend(cache, q, [n] * len(prefixes), mask.flatten())
    for i, prefix in enumerate(prefixes):
        for node in range(n):
            visible = [*range(prefix), *(prefix + j for j in paths[i][node])]
            expected = reference(cache, i, q[i * n + node], visible, 0.5)
            torch.testing.assert_close(out[i * n + node], expected)


def _path(parents: list[int], node: int) -> list[int]:
    path = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    return path


def test_without_causality_a_query_sees_the_whole_request() -> None:
    cache = Cache([7], 0)
    q = cache.queries(3)
    out = extend(cache, q, [3], causal=False)
    for j in range(3):
        torch.testing.assert_close(out[j], reference(cache, 0, q[j], list(range(7)), 0.5))


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [(15, 30.0, "soft cap"), (16, True, "cross attention"), (17, 128, "sliding window"), (6, 0.5, "fp8")],
)
def test_what_is_not_computed_is_refused_by_name(place: int, value: float, words: str) -> None:
    cache = Cache([3], 0)
    q = cache.queries(3)
    three = torch.tensor([3], dtype=torch.int32)
    args = [q, None, None, q.clone(), cache.k, cache.v, 1.0, 1.0, cache.req_to_token, cache.rows, cache.seq_lens]
    args += [three, three - 3, 3, 0.5, 0.0, False, 0, None, None, None, True]
    args[place] = value
    with pytest.raises(NotImplementedError, match=words):
        torch.ops.sgl_kernel.extend_attention_cpu(*args)
