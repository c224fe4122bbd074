"""The one name of ``sgl_kernel.speculative`` that NGRAM decoding uses."""

from ._tree import reconstruct_indices_from_tree_mask

__all__ = ["reconstruct_indices_from_tree_mask"]
