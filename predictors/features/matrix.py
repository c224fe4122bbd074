"""From a request to numbers: the features that the hazard model reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from laps_sd.data import PromptRequest
from laps_sd.predictors.buckets import Floats
from laps_sd.predictors.features.arrival import ArrivalFeatures
from laps_sd.predictors.features.encoder import Encoder
from laps_sd.predictors.features.kernel import KernelRidge
from laps_sd.predictors.features.lexical import LEXICAL_NAMES, lexical_rows, words_of
from laps_sd.predictors.features.word_table import WordTable, decode_terms, encode_terms
from laps_sd.predictors.state import State

#: Standardised features beyond this many standard deviations say no more.
_CLIP = 4.0
#: Weights of the surface features and the latent word dimensions beside a unit-length embedding, in distances.
_SURFACE_WEIGHT, _WORD_WEIGHT = 0.08, 1.5

#: Prompts taken at a time: enough to share what numpy charges per call, few enough for the caches.
_CHUNK = 128

_ARRIVAL = len(ArrivalFeatures.NAMES)
_SURFACE = _ARRIVAL + len(LEXICAL_NAMES)


@dataclass(frozen=True)
class FeatureMap:
    """Fitted features: columns are the arrival, lexical and word features, and last a smooth score of them all.

    Attributes
    ----------
    arrival : ArrivalFeatures
        Sampling parameters, model, history.
    words : WordTable
        A ridge score and latent dimensions of the prompt's words.
    center, scale : arrays, shape (p,)
        Of the arrival and lexical features, for distances.
    kernel : KernelRidge
        The smooth score.
    encoder : Encoder, optional
        Its embedding replaces the word dimensions in the smooth score.
    """

    arrival: ArrivalFeatures
    words: WordTable
    center: Floats
    scale: Floats
    kernel: KernelRidge
    encoder: Encoder | None = None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """One name per column."""
        latent = (f"word_{i}" for i in range(self.words.width - 1))
        return (*ArrivalFeatures.NAMES, *LEXICAL_NAMES, "word_score", *latent, "smooth_score")

    @property
    def word_column(self) -> int:
        """Column of the words' ridge score; the smooth score is the last column."""
        return _SURFACE

    def rows(self, requests: Sequence[PromptRequest]) -> Floats:
        """Return the features, shape (n, len(names))."""
        rows = np.empty((len(requests), _SURFACE + self.words.width + 1))
        for start in range(0, len(requests), _CHUNK):
            chunk, part = requests[start : start + _CHUNK], rows[start : start + _CHUNK]
            texts = [request.prompt for request in chunk]
            words = [words_of(text) for text in texts]
            part[:, :_ARRIVAL] = [self.arrival.row(request) for request in chunk]
            lexical_rows(texts, words, out=part[:, _ARRIVAL:_SURFACE])
            part[:, _SURFACE:-1] = self.words.rows(words)
        if len(rows):
            vectors = embed(self.encoder, requests)
            space = smooth_space(rows[:, :_SURFACE], rows[:, _SURFACE:-1], vectors, self.center, self.scale)
            rows[:, -1] = self.kernel.predict(space)
        return rows

    def to_state(self) -> State:
        """Return the learned state."""
        meta: dict[str, Any] = {
            "names": list(self.names),
            "arrival": self.arrival.to_meta(),
            "word_intercept": self.words.intercept,
            "kernel": {"mean": self.kernel.mean, "gamma": self.kernel.gamma},
        }
        arrays: dict[str, NDArray[Any]] = {
            "center": self.center,
            "scale": self.scale,
            "word_table": self.words.table,
            "word_squares": self.words.squares,
            "landmarks": self.kernel.landmarks,
            "kernel_weights": self.kernel.weights,
        }
        texts = {"terms": encode_terms(self.words.vocabulary)}
        if self.encoder is not None:
            state = self.encoder.to_state()
            meta["encoder"] = state.meta
            arrays.update({f"encoder/{name}": array for name, array in state.arrays.items()})
            texts.update({f"encoder_{name}": text for name, text in state.texts.items()})
        return State("features", meta, arrays, texts)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Rebuild fitted features.

        Raises
        ------
        ValueError
            The state was written for other features than this version computes.
        """
        meta, arrays = state.meta, state.arrays
        vocabulary, table = decode_terms(state.texts["terms"]), arrays["word_table"]
        if len(table) != len(vocabulary):
            raise ValueError("the word table does not fit its vocabulary")
        features = cls(
            ArrivalFeatures.from_meta(meta["arrival"]),
            WordTable(vocabulary, table, arrays["word_squares"], meta["word_intercept"]),
            arrays["center"],
            arrays["scale"],
            KernelRidge(arrays["landmarks"], arrays["kernel_weights"], **meta["kernel"]),
            _encoder(state),
        )
        if list(features.names) != meta["names"]:
            raise ValueError("it was trained on other features than this version of laps-sd computes")
        return features


def _encoder(state: State) -> Encoder | None:
    if "encoder" not in state.meta:
        return None
    weights = {n.removeprefix("encoder/"): a for n, a in state.arrays.items() if n.startswith("encoder/")}
    texts = {n.removeprefix("encoder_"): t for n, t in state.texts.items() if n.startswith("encoder_")}
    return Encoder.from_state(State("encoder", state.meta["encoder"], weights, texts))


def embed(encoder: Encoder | None, requests: Sequence[PromptRequest]) -> Floats | None:
    """Return the requests' embeddings, shape (n, d), when there is an encoder."""
    return None if encoder is None else encoder.embed([r.prompt for r in requests])


def smooth_space(surface: Floats, words: Floats, vectors: Floats | None, center: Floats, scale: Floats) -> Floats:
    """Return what the kernel measures distances in: scaled surface features beside word dimensions or embedding."""
    scaled = (surface - center) / scale
    np.maximum(scaled, -_CLIP, out=scaled)  # np.clip costs several times as much on one row
    np.minimum(scaled, _CLIP, out=scaled)
    scaled *= _SURFACE_WEIGHT
    return np.concatenate([scaled, _WORD_WEIGHT * words[:, 1:] if vectors is None else vectors], axis=1)
