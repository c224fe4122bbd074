"""Find near-duplicate texts: most of their word triples agree.

MinHash with banding (Broder 1997; Leskovec, Rajaraman and Ullman, *Mining of Massive Datasets*, chapter 3) proposes
pairs, the exact Jaccard similarity of their triples decides.
"""

import zlib
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

#: Two texts with at least this share of word triples in common are near-duplicates.
SIMILAR = 0.7
#: Words looked at; longer texts differ or agree before that.
_WORDS = 1500
_BANDS, _ROWS = 20, 4  # a pair at Jaccard 0.7 is proposed with probability 0.996, one at 0.3 with 0.15
_LOOK_BACK = 8
_PRIME = np.uint64(2**31 - 1)


def near_duplicates(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield pairs of places whose texts are near-duplicates; connected ones form a group.

    Parameters
    ----------
    texts
        Normalised texts (words apart by blanks). Texts of fewer than five words are left out: three words in common
        say little.
    """
    shingles = [_shingles(text) for text in texts]
    proposed: set[tuple[int, int]] = set()
    for members in _buckets(shingles):
        for pair in _pairs(members):
            if pair not in proposed:
                proposed.add(pair)
                if _jaccard(shingles[pair[0]], shingles[pair[1]]) >= SIMILAR:
                    yield pair


def _pairs(members: list[int]) -> Iterator[tuple[int, int]]:
    """Pair each member with the few before it: all pairs would be quadratic, a chain joins as well."""
    for at, second in enumerate(members):
        for first in members[max(0, at - _LOOK_BACK) : at]:
            yield first, second


def _shingles(text: str) -> NDArray[np.uint64]:
    """Return the distinct word triples of a text as ascending numbers below 2³¹ − 1."""
    words = np.array([zlib.crc32(word.encode("utf-8", "surrogatepass")) for word in text.split()[:_WORDS]], np.uint64)
    if words.size < 5:
        return np.empty(0, np.uint64)
    mixed = words[:-2] * np.uint64(0x9E3779B1) + words[1:-1] * np.uint64(0x85EBCA77) + words[2:] * np.uint64(0xC2B2AE3D)
    return np.unique((mixed >> np.uint64(16)) % _PRIME)


def _buckets(shingles: Sequence[NDArray[np.uint64]]) -> Iterator[list[int]]:
    """Yield the places that share a band of their MinHash signatures."""
    rng = np.random.default_rng(0)  # any fixed functions do
    a = rng.integers(1, int(_PRIME), _BANDS * _ROWS, dtype=np.uint64)
    b = rng.integers(0, int(_PRIME), _BANDS * _ROWS, dtype=np.uint64)
    buckets: dict[tuple[int, bytes], list[int]] = {}
    for place, values in enumerate(shingles):
        if values.size:
            signature = ((values[:, None] * a + b) % _PRIME).min(axis=0).astype(np.uint32)
            for band in range(_BANDS):
                key = (band, signature[band * _ROWS : (band + 1) * _ROWS].tobytes())
                buckets.setdefault(key, []).append(place)
    return (members for members in buckets.values() if len(members) > 1)


def _jaccard(first: NDArray[np.uint64], second: NDArray[np.uint64]) -> float:
    common = np.intersect1d(first, second, assume_unique=True).size
    return common / (first.size + second.size - common)
