"""Draft trees of speculative decoding: building them and verifying them greedily, in plain PyTorch.

Every request drafts a tree of n nodes. Node 0 is its last verified token. A tree is stored as first-child
(``next_token``) and next-sibling (``next_sibling``) links, −1 where there is none, and as an ancestor mask [n, n]
(a node is its own ancestor).
"""

import torch
from torch import Tensor

#: The only mask form that SGLang selects on a CPU: n × n bits per request, the committed prefix left out.
QLEN_ONLY = 1


def _set_links(parents: list[int], next_token: Tensor, next_sibling: Tensor) -> None:
    """Write the child and sibling links of the tree in which node i has parent ``parents[i]`` (−1: none)."""
    child = [-1] * len(parents)
    sibling = [-1] * len(parents)
    for node in range(len(parents) - 1, 0, -1):  # backwards: the first child must end up in front
        parent = parents[node]
        if parent >= 0:
            sibling[node], child[parent] = child[parent], node
    next_token.copy_(torch.tensor(child, dtype=next_token.dtype))
    next_sibling.copy_(torch.tensor(sibling, dtype=next_sibling.dtype))


def _parents(chosen: list[int], origins: list[int], topk: int) -> list[int]:
    """Parent node of each node of a tree whose nodes 1, 2 … are the candidates ``chosen``.

    A candidate c was expanded from candidate ``origins[c // topk]``, the first ``topk`` from the root.
    """
    node_of: dict[int, int] = {}
    for node, candidate in enumerate(chosen, start=1):
        node_of.setdefault(candidate, node)
    return [-1, *(0 if c < topk else node_of.get(origins[c // topk], -1) for c in chosen)]


def _path_to_root(node: int, parents: list[int]) -> list[int]:
    path = []
    while node > 0:
        path.append(node)
        node = parents[node]
    return path


def build_tree_kernel_efficient_cpu(
    parent_list: Tensor,
    selected_index: Tensor,
    verified_seq_len: Tensor,
    tree_mask: Tensor,
    positions: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """Turn the draft model's choice of candidates into trees of ``draft_token_num`` nodes.

    Node i ≥ 1 is candidate ``selected_index[b, i − 1]`` in the flat list of all drafted candidates; see
    :func:`_parents` for ``parent_list``. Fills the ancestor mask, absolute positions, flat node numbers and links.
    """
    if int(tree_mask_mode) != QLEN_ONLY:
        raise NotImplementedError(f"the CPU stand-in of laps-sd has no tree mask of mode {tree_mask_mode}")
    batch, n = verified_seq_len.numel(), draft_token_num
    masks = tree_mask[: batch * n * n].view(batch, n, n)
    position_of = positions.view(batch, n)
    for b, length in enumerate(verified_seq_len.tolist()):
        origins = parent_list[b].tolist() if parent_list.numel() else []
        parents = _parents(selected_index[b].tolist(), origins, topk)
        paths = [_path_to_root(node, parents) for node in range(n)]
        ancestors = torch.zeros(n, n, dtype=torch.bool)
        ancestors[:, 0] = True
        for node, path in enumerate(paths):
            ancestors[node, path] = True
        masks[b] = ancestors.to(masks.dtype)
        position_of[b] = torch.tensor([length + len(path) for path in paths], dtype=position_of.dtype)
        retrive_index[b] = torch.arange(b * n, (b + 1) * n, dtype=retrive_index.dtype)
        _set_links(parents, retrive_next_token[b], retrive_next_sibling[b])


def reconstruct_indices_from_tree_mask(
    tree_mask: Tensor,
    verified_seq_len: Tensor,
    positions: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    batch_size: int,
    draft_token_num: int,
) -> None:
    """Positions, node numbers and links from ready-made ancestor masks [batch, n, n] (NGRAM)."""
    batch, n = batch_size, draft_token_num
    masks = tree_mask.reshape(-1)[: batch * n * n].view(batch, n, n).bool()
    above = masks & torch.ones(n, n, dtype=torch.bool).tril(-1)
    position_of = above.sum(-1) + verified_seq_len.view(-1, 1)
    positions.view(-1)[: batch * n] = position_of.reshape(-1).to(positions.dtype)
    nodes = torch.arange(n)
    parents = torch.where(above, nodes, torch.full_like(nodes, -1)).amax(-1)  # the nearest ancestor
    index, child, sibling = (
        t.view(-1)[: batch * n].view(batch, n) for t in (retrive_index, retrive_next_token, retrive_next_sibling)
    )
    index.copy_(torch.arange(batch * n).view(batch, n))
    for b in range(batch):
        _set_links(parents[b].tolist(), child[b], sibling[b])


def verify_tree_greedy_cpu(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Walk each tree from its root as long as a child is what the target model would say next.

    Fills, for the accepted nodes, ``predicts`` (flat: the target's next token at the node), ``accept_index``
    [batch, depth] (flat node numbers, root first) and ``accept_token_num`` [batch] (accepted drafts, root not counted).
    """
    depth, n = accept_index.shape[1], candidates.shape[1]
    index, child, sibling = (
        t.reshape(-1, n).tolist() for t in (retrive_index, retrive_next_token, retrive_next_sibling)
    )
    target = target_predict.reshape(-1).tolist()
    for b, tokens in enumerate(candidates.tolist()):
        node, path = 0, [index[b][0]]
        while len(path) < depth:
            wanted = target[path[-1]]
            node = child[b][node]
            while node != -1 and tokens[node] != wanted:
                node = sibling[b][node]
            if node == -1:
                break
            path.append(index[b][node])
        accepted = torch.tensor(path)
        predicts[accepted] = torch.tensor([target[p] for p in path], dtype=predicts.dtype)
        accept_index[b, : len(path)] = accepted.to(accept_index.dtype)
        accept_token_num[b] = len(path) - 1
