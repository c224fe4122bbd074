"""LightGBM's text form of trees, read before LightGBM reads it.

Its own reader checks nothing: a child that points outside makes it read foreign memory, one that points back makes a
prediction run for ever, and a wrong size of a tree crashes it. Here a model is accepted only as what this project
writes (numerical splits, constant leaves), and LightGBM gets a text that is written anew from the checked numbers.

The new text names no sizes of trees, so LightGBM reads it without OpenMP: with it, loading hangs in a child that was
forked by a process in which OpenMP has run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Far above what training makes (400 rounds of 3 trees with 15 leaves, 139 features): what is larger is no such model.
MOST_TREES, MOST_LEAVES, MOST_FEATURES = 100_000, 10_000, 100_000
#: Leaves beyond this make no sense as logits; sums of them stay finite.
MOST_VALUE = 1e30

#: A threshold may be infinite: what is missing goes one way then, and all else the other.
_NUMBERS = re.compile(r"(?:[-+.\deE ]|inf)*", re.ASCII)
#: Bits of LightGBM's decision type: 1 is a categorical split, 2 sends what is missing left, 4 and 8 say what that is.
_CATEGORICAL, _DECISIONS = 1, 16
_LISTS = ("split_feature", "threshold", "decision_type", "left_child", "right_child", "leaf_value")


def checked_text(text: str, outputs: int) -> str:
    """Return the same trees as a text that LightGBM reads safely.

    Parameters
    ----------
    text : str
        What ``Booster.model_to_string`` returned.
    outputs : int
        Trees per boosting round.

    Raises
    ------
    ValueError
        One sentence with what is wrong.
    """
    if not text.startswith("tree\n"):
        raise ValueError("not a LightGBM model")
    head, *blocks = text.partition("\nend of trees")[0].split("\nTree=")
    fields = _fields(head)
    for name in ("num_class", "num_tree_per_iteration"):
        if _whole(fields, name) != outputs:
            raise ValueError(f"the LightGBM model does not give {outputs} numbers per row")
    features = _whole(fields, "max_feature_idx") + 1
    if not 1 <= features <= MOST_FEATURES:
        raise ValueError(f"the LightGBM model reads {features} features, expected 1 to {MOST_FEATURES}")
    if len(blocks) > MOST_TREES or len(blocks) % outputs or not blocks:
        raise ValueError(f"the LightGBM model has {len(blocks)} trees, expected rounds of {outputs}")
    trees = [_fields(block.partition("\n")[2]) for block in blocks]
    leaves = np.array([_whole(tree, "num_leaves") for tree in trees])
    if (leaves < 1).any() or (leaves > MOST_LEAVES).any():
        raise ValueError(f"a tree has {leaves.max()} leaves or none, expected 1 to {MOST_LEAVES}")
    if any(tree.get("num_cat") != "0" or tree.get("is_linear", "0") != "0" for tree in trees):
        raise ValueError("a tree has categorical splits or linear leaves, which no predictor here trains")
    _check_trees(trees, leaves, features)
    names = " ".join(f"Column_{i}" for i in range(features))
    lines = [
        "tree",
        "version=v4",
        f"num_class={outputs}",
        f"num_tree_per_iteration={outputs}",
        "label_index=0",
        f"max_feature_idx={features - 1}",
        f"feature_names={names}",
        f"feature_infos={' '.join(['none'] * features)}",
        "",
    ]
    for i, (tree, count) in enumerate(zip(trees, leaves.tolist(), strict=True)):
        lines += [f"Tree={i}", f"num_leaves={count}", "num_cat=0"]
        lines += [f"{name}={tree[name]}" for name in _LISTS if count > 1 or name == "leaf_value"]
        lines += ["is_linear=0", "shrinkage=1", "", ""]
    return "\n".join([*lines, "end of trees", ""])


def _fields(block: str) -> dict[str, str]:
    """Return the ``name=value`` lines of a block; of two with one name LightGBM would choose, so they are refused."""
    found: dict[str, str] = {}
    for line in block.split("\n"):
        name, sign, value = line.partition("=")
        if sign and found.setdefault(name, value) is not value:
            raise ValueError(f"the LightGBM model says {name[:40]!r} twice")
    return found


def _whole(fields: dict[str, str], name: str) -> int:
    text = fields.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ValueError(f"the LightGBM model has no whole number {name} ({text[:20]!r})")
    return int(text)


def _check_trees(trees: list[dict[str, str]], leaves: NDArray[np.int64], features: int) -> None:
    """Check all trees at once: what each list holds, and that every leaf is reached on one way."""
    values = _joined((tree.get("leaf_value", "") for tree in trees), leaves, float)
    if not (np.abs(values) <= MOST_VALUE).all():  # also what is no number
        raise ValueError("a leaf holds a value that is not a finite number")
    splitting = [tree for tree, count in zip(trees, leaves, strict=True) if count > 1]
    inner = leaves[leaves > 1] - 1
    if not splitting:
        return
    whole = {
        name: _joined((tree.get(name, "") for tree in splitting), inner, int)
        for name in ("split_feature", "decision_type", "left_child", "right_child")
    }
    _joined((tree.get("threshold", "") for tree in splitting), inner, float)
    if (whole["split_feature"] < 0).any() or (whole["split_feature"] >= features).any():
        raise ValueError(f"a tree splits on a feature outside of the {features} there are")
    decisions = whole["decision_type"]
    if (decisions < 0).any() or (decisions >= _DECISIONS).any() or (decisions & _CATEGORICAL).any():
        raise ValueError("a split is of an unknown kind")
    _check_shape(whole["left_child"], whole["right_child"], inner)


def _check_shape(left: NDArray[np.int64], right: NDArray[np.int64], inner: NDArray[np.int64]) -> None:
    """Check that the children of every tree's ``inner`` nodes make a tree.

    LightGBM numbers a node after its parent. With every node but the root and every leaf (-1, -2 …) being a child
    exactly once, there is then no way around in circles.
    """
    starts = np.cumsum(inner) - inner
    base, most = np.repeat(starts, inner), np.repeat(inner, inner)
    node = np.arange(len(base)) - base
    for child in (left, right):
        if (child >= most).any() or (child < -most - 1).any() or ((child >= 0) & (child <= node)).any():
            raise ValueError("a tree has a child that points outside of it or back")
    children = np.concatenate([left, right])
    bases, leaf = np.concatenate([base, base]), children < 0
    tree = np.repeat(np.arange(len(inner)), inner)
    trees = np.concatenate([tree, tree])
    nodes = np.bincount((bases + children)[~leaf], minlength=len(base))
    ends = np.bincount((bases + trees - children - 1)[leaf], minlength=len(base) + len(inner))
    nodes[starts] += 1  # the root is nobody's child
    if (nodes != 1).any() or (ends != 1).any():
        raise ValueError("a tree has a node or a leaf that is reached twice or never")


def _joined(lists: Iterable[str], counts: NDArray[np.int64], kind: Callable[[str], float]) -> NDArray[Any]:
    """Return the numbers of all lists, one after the other; list i must hold ``counts[i]``."""
    texts = list(lists)
    together = " ".join(texts)
    if not _NUMBERS.fullmatch(together):
        raise ValueError("the LightGBM model holds something that is not a number")
    if [text.count(" ") + 1 if text else 0 for text in texts] != counts.tolist():
        raise ValueError("a tree has more or fewer splits or leaves than it says")
    try:
        numbers = np.array([kind(word) for word in together.split(" ")])
    except ValueError:
        raise ValueError("the LightGBM model holds something that is not a number") from None
    if kind is int and numbers.dtype != np.int64:
        raise ValueError("a tree names a node or a feature that no tree can have")
    return numbers
