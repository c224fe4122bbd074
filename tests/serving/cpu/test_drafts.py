"""The stand-in's bookkeeping of drafts: trees, greedy verification and KV slots."""

import types

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from laps_sd.serving.cpu import launch


@pytest.fixture(scope="module")
def kernel() -> types.ModuleType:
    with launch.importable():
        import sgl_kernel
        import sgl_kernel.speculative

    return sgl_kernel


def links(batch: int, n: int) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(torch.full((batch, n), -9, dtype=torch.int64) for _ in range(3))


def build(kernel: types.ModuleType, parents: Tensor, selected: Tensor, seq_lens: list[int], topk: int) -> dict:
    batch, n = selected.shape[0], selected.shape[1] + 1
    mask = torch.zeros(batch * n * n, dtype=torch.bool)
    positions = torch.zeros(batch * n, dtype=torch.int64)
    index, child, sibling = links(batch, n)
    kernel.build_tree_kernel_efficient_cpu(
        parents, selected, torch.tensor(seq_lens), mask, positions, index, child, sibling, topk, 2, n, 1
    )
    return {"mask": mask, "positions": positions, "index": index, "child": child, "sibling": sibling}


def test_a_chain_of_drafts_is_a_causal_tree(kernel: types.ModuleType) -> None:
    tree = build(kernel, torch.tensor([[-1, 0, 1]]), torch.tensor([[0, 1, 2]]), [10], topk=1)
    assert tree["positions"].tolist() == [10, 11, 12, 13]
    assert torch.equal(tree["mask"].view(4, 4), torch.ones(4, 4, dtype=torch.bool).tril())
    assert tree["child"].tolist() == [[1, 2, 3, -1]]
    assert tree["sibling"].tolist() == [[-1, -1, -1, -1]]


def test_a_tree_of_two_branches(kernel: types.ModuleType) -> None:
    # Level 1: candidates 0 and 1 of the root. Candidates 2, 3 were expanded from 0, candidates 4, 5 from 1.
    tree = build(kernel, torch.tensor([[-1, 0, 1]]), torch.tensor([[0, 1, 2, 5]]), [3], topk=2)
    assert tree["positions"].tolist() == [3, 4, 4, 5, 5]
    assert tree["child"].tolist() == [[1, 3, 4, -1, -1]]
    assert tree["sibling"].tolist() == [[-1, 2, -1, -1, -1]]
    visible = [row.nonzero().flatten().tolist() for row in tree["mask"].view(5, 5)]
    assert visible == [[0], [0, 1], [0, 2], [0, 1, 3], [0, 2, 4]]


def test_the_second_request_of_a_batch_has_its_own_flat_node_numbers(kernel: types.ModuleType) -> None:
    tree = build(kernel, torch.tensor([[-1, 0]] * 2), torch.tensor([[0, 1]] * 2), [5, 8], topk=1)
    assert tree["index"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert tree["positions"].tolist() == [5, 6, 7, 8, 9, 10]


def test_another_form_of_mask_is_refused(kernel: types.ModuleType) -> None:
    with pytest.raises(NotImplementedError, match="mode 0"):
        kernel.build_tree_kernel_efficient_cpu(*[torch.zeros(1)] * 8, 1, 1, 1, 0)


@st.composite
def trees(draw: st.DrawFn) -> list[list[int]]:
    """Parents of each node, for a batch of trees of one size."""
    n = draw(st.integers(1, 7))
    one = st.tuples(*(st.integers(0, node - 1) for node in range(1, n))).map(lambda rest: [-1, *rest])
    return draw(st.lists(one, min_size=1, max_size=3))


def ancestors(parents: list[int], node: int) -> list[int]:
    return [] if node < 0 else [*ancestors(parents, parents[node]), node]


def from_mask(kernel: types.ModuleType, batch: list[list[int]], seq_len: int) -> dict:
    n = len(batch[0])
    mask = torch.zeros(len(batch), n, n, dtype=torch.bool)
    for b, parents in enumerate(batch):
        for node in range(n):
            mask[b, node, ancestors(parents, node)] = True
    positions = torch.zeros(len(batch) * n, dtype=torch.int64)
    index, child, sibling = links(len(batch), n)
    kernel.speculative.reconstruct_indices_from_tree_mask(
        mask.flatten(), torch.full((len(batch),), seq_len), positions, index, child, sibling, len(batch), n
    )
    return {"mask": mask, "positions": positions, "index": index, "child": child, "sibling": sibling}


@given(trees())
@settings(deadline=None)
def test_links_rebuilt_from_a_mask_visit_each_node_once_below_its_parent(
    kernel: types.ModuleType, batch: list[list[int]]
) -> None:
    tree = from_mask(kernel, batch, seq_len=20)
    for b, parents in enumerate(batch):
        child, sibling = tree["child"][b].tolist(), tree["sibling"][b].tolist()
        below: dict[int, list[int]] = {}
        for node in range(len(parents)):
            other = child[node]
            while other != -1:
                below.setdefault(node, []).append(other)
                other = sibling[other]
        expected: dict[int, list[int]] = {}
        for node, parent in enumerate(parents[1:], start=1):
            expected.setdefault(parent, []).append(node)
        assert below == expected
        depths = [20 + len(ancestors(parents, node)) - 1 for node in range(len(parents))]
        assert tree["positions"].view(len(batch), -1)[b].tolist() == depths


def longest_agreement(parents: list[int], tokens: list[int], target: list[int]) -> list[int]:
    """Nodes from the root on, each the first child that is the target's next token: by definition, not by links."""
    path = [0]
    while True:
        node = path[-1]
        fits = [c for c, parent in enumerate(parents) if parent == node and tokens[c] == target[node]]
        if not fits:
            return path
        path.append(fits[0])


@given(trees(), st.data())
@settings(deadline=None)
def test_verification_accepts_the_path_that_the_target_would_have_written(
    kernel: types.ModuleType, batch: list[list[int]], data: st.DataObject
) -> None:
    n = len(batch[0])
    words = st.lists(st.lists(st.integers(0, 2), min_size=n, max_size=n), min_size=len(batch), max_size=len(batch))
    tokens, target = data.draw(words), data.draw(words)
    tree = from_mask(kernel, batch, seq_len=1)
    predicts = torch.full((len(batch) * n,), -1, dtype=torch.int32)
    accept_index = torch.full((len(batch), n), -1, dtype=torch.int32)
    accepted = torch.zeros(len(batch), dtype=torch.int32)
    kernel.verify_tree_greedy_cpu(
        predicts=predicts,
        accept_index=accept_index,
        accept_token_num=accepted,
        candidates=torch.tensor(tokens),
        retrive_index=tree["index"],
        retrive_next_token=tree["child"],
        retrive_next_sibling=tree["sibling"],
        target_predict=torch.tensor(target),
    )
    for b, parents in enumerate(batch):
        path = longest_agreement(parents, tokens[b], target[b])
        assert accepted[b] == len(path) - 1
        assert [i for i in accept_index[b].tolist() if i >= 0] == [b * n + node for node in path]
        assert [predicts[b * n + node] for node in path] == [target[b][node] for node in path]


def test_verification_stops_at_the_depth_that_the_caller_has_room_for(kernel: types.ModuleType) -> None:
    tree = from_mask(kernel, [[-1, 0, 1, 2]], seq_len=1)
    accept_index = torch.full((1, 2), -1, dtype=torch.int32)
    accepted = torch.zeros(1, dtype=torch.int32)
    sevens = torch.full((1, 4), 7)
    kernel.verify_tree_greedy_cpu(
        torch.zeros(4, dtype=torch.int32), accept_index, accepted, sevens, *tree_links(tree), sevens
    )
    assert accept_index.tolist() == [[0, 1]]
    assert accepted.tolist() == [1]


def tree_links(tree: dict) -> tuple[Tensor, Tensor, Tensor]:
    return tree["index"], tree["child"], tree["sibling"]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), min_size=1, max_size=4))
@settings(deadline=None)
def test_slots_that_were_assigned_are_read_back(kernel: types.ModuleType, spans: list[tuple[int, int]]) -> None:
    table = torch.full((6, 12), -1, dtype=torch.int32)
    rows = torch.tensor([5, 0, 3, 1][: len(spans)], dtype=torch.int32)
    start = torch.tensor([first for first, _ in spans])
    end = torch.tensor([first + count for first, count in spans])
    slots = torch.arange(100, 100 + int((end - start).sum()))
    kernel.assign_req_to_token_pool_cpu(rows, table, start, end, slots, 12)
    assert int((table != -1).sum()) == len(slots)  # and nothing else was touched
    back = torch.zeros_like(slots)
    kernel.assign_extend_cache_locs_cpu(rows, table, start, end, back, 12)
    assert torch.equal(back, slots)


def test_draft_slots_follow_the_committed_ones(kernel: types.ModuleType) -> None:
    table = torch.arange(40).view(2, 20)
    out = torch.zeros(2 * 2 * 3, dtype=torch.int64)
    kernel.assign_draft_cache_locs_contiguous_cpu(torch.tensor([1, 0]), table, torch.tensor([4, 7]), out, 20, 2, 3)
    assert out.tolist() == [24, 25, 26, 27, 28, 29, 7, 8, 9, 10, 11, 12]


def test_each_draft_branch_sees_its_own_slots(kernel: types.ModuleType) -> None:
    table = torch.arange(12).view(1, 12)
    rows = kernel.build_draft_decode_metadata_cpu(table, torch.tensor([0]), torch.tensor([4]), 2, 3, 12)
    assert rows[0, :7].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert rows[1, :7].tolist() == [0, 1, 2, 3, 7, 8, 9]


def test_the_bonus_token_is_the_last_accepted_one(kernel: types.ModuleType) -> None:
    bonus = torch.zeros(2, dtype=torch.int32)
    tokens = torch.tensor([[5, 6, 7, -1], [8, -1, -1, -1]])
    kernel.fill_bonus_tokens_cpu(tokens, torch.tensor([3, 1]), bonus, 4)
    assert bonus.tolist() == [7, 8]


def test_the_slots_of_accepted_nodes_are_compacted_in_order(kernel: types.ModuleType) -> None:
    out = torch.zeros(4, dtype=torch.int64)
    nodes = torch.tensor([[0, 2, -1], [3, -1, -1]])
    kernel.fill_accept_out_cache_loc_cpu(nodes, torch.tensor([50, 51, 52, 53]), out)
    assert out.tolist() == [50, 52, 53, 0]


@given(st.permutations(range(6)), st.integers(0, 6))
@settings(deadline=None)
def test_cache_rows_move_as_if_all_were_read_first(kernel: types.ModuleType, order: list[int], count: int) -> None:
    buffers = [torch.randn(6, 2, 3), torch.arange(6 * 4).view(6, 4)]
    source, target = torch.arange(6)[:count], torch.tensor(order, dtype=torch.int64)[:count]
    expected = [buffer.clone() for buffer in buffers]
    for copy, buffer in zip(expected, buffers, strict=True):
        copy[target] = buffer[source]
    addresses = torch.tensor([buffer.data_ptr() for buffer in buffers])
    row_bytes = torch.tensor([buffer[0].numel() * buffer.element_size() for buffer in buffers])
    kernel.copy_all_layer_kv_cache_cpu(addresses, row_bytes, target, source)
    for copy, buffer in zip(expected, buffers, strict=True):
        assert torch.equal(copy, buffer)


def test_names_that_the_standin_lacks_say_so(kernel: types.ModuleType) -> None:
    with pytest.raises(AttributeError, match=r"no sgl_kernel\.top_k"):
        _ = kernel.top_k
    with pytest.raises(NotImplementedError, match="multi-layer EAGLE"):
        kernel.rotate_input_ids_cpu()
    assert not hasattr(torch.ops.sgl_kernel, "convert_weight_packed"), "it would turn on SGLang's AMX path"
