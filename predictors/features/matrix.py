"""From a request to numbers: the features that the hazard model reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from laps_sd.data import PromptRequest
from laps_sd.predictors.arrays import Bools, Floats, Ints, number, shaped
from laps_sd.predictors.features.arrival import ArrivalFeatures
from laps_sd.predictors.features.base import FeatureSet
from laps_sd.predictors.features.encoder import Encoder, default_encoder
from laps_sd.predictors.features.form import FORM_EFFECTS, FORM_NAMES, form_row
from laps_sd.predictors.features.kernel import KernelRidge
from laps_sd.predictors.features.lexical import LEXICAL_NAMES, lexical_rows, words_of
from laps_sd.predictors.features.word_table import WordTable, decode_terms, encode_terms
from laps_sd.predictors.rows import FitOptions
from laps_sd.predictors.state import State

#: Standardised features beyond this many standard deviations say no more.
_CLIP = 4.0
#: Weights of the surface features and the latent word dimensions beside a unit-length embedding, in distances.
_SURFACE_WEIGHT, _WORD_WEIGHT = 0.08, 1.5
#: The same for acceptance, with its own latent dimensions and limits.
_POINT_WORD_WEIGHT, _POINT_DIMENSIONS, _POINT_CLIP = 1.3, 30, 3.0
#: Counts of word classes tell lengths; for acceptance they only blur the distances.
_NOT_IN_POINTS = ("words_", "opening_", "closing_", "first_class", "model_score", "log_cap", "temperature", "log_turns")

#: Prompts taken at a time: enough to share what numpy charges per call, few enough for the caches.
_CHUNK = 128

_ARRIVAL = len(ArrivalFeatures.NAMES)
_LEXICAL = _ARRIVAL + len(LEXICAL_NAMES)


@dataclass(frozen=True)
class FeatureMap(FeatureSet):
    """The lexical features: arrival, surface, form and word features, and last a smooth score of them all.

    The form of an answer is read where training saw a request that says something about it: so bundles of before, and
    those of plain prompts, hold the same features as ever.

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
    form : bool
        Whether the features of the answer's form are among them.
    """

    arrival: ArrivalFeatures
    words: WordTable
    center: Floats
    scale: Floats
    kernel: KernelRidge
    encoder: Encoder | None = None
    form: bool = False

    kind: ClassVar[str] = "lexical"

    @classmethod
    def fit(
        cls,
        requests: Sequence[PromptRequest],
        tokens: Floats,
        censored: Bools,
        folds: Sequence[Ints],
        options: FitOptions,
    ) -> tuple[Self, Floats]:
        """Learn words, scales and scores; see :meth:`FeatureSet.fit`."""
        from laps_sd.predictors.features.fit import PromptFeatures  # not above: it needs scikit-learn

        encoder = (options.encoder or default_encoder()) if cls.reads_encoder else None
        learner = PromptFeatures(encoder=encoder, seed=options.seed)
        rows = learner.fit_transform(requests, tokens, censored, folds)
        return learner.map_, rows  # type: ignore[return-value]  # a learner with an encoder makes an EmbeddingMap

    @cached_property
    def names(self) -> tuple[str, ...]:
        """One name per column."""
        latent = (f"word_{i}" for i in range(self.words.width - 1))
        return (*ArrivalFeatures.NAMES, *LEXICAL_NAMES, *self._form_names, "word_score", *latent, "smooth_score")

    @property
    def _form_names(self) -> tuple[str, ...]:
        return FORM_NAMES if self.form else ()

    @cached_property
    def _surface(self) -> int:
        """Columns before those of the words."""
        return _LEXICAL + len(self._form_names)

    @cached_property
    def score_columns(self) -> tuple[int, ...]:
        """The words' ridge score, and the smooth score."""
        return (self._surface, len(self.names) - 1)

    @cached_property
    def effect_columns(self) -> tuple[int, ...]:
        """Prompt tokens, earlier turns and temperature; where it is read, the form of the answer."""
        single = ("log_prompt_tokens", "log_turns", "temperature", *(FORM_EFFECTS if self.form else ()))
        return tuple(self.names.index(name) for name in single)

    def points(self, rows: Floats) -> Floats:
        """Return scaled surface features beside latent word dimensions, shape (n, d)."""
        columns, center, scale, latent = self._point_columns
        scaled = (rows[:, columns] - center) * scale
        np.clip(scaled, -_POINT_CLIP * _SURFACE_WEIGHT, _POINT_CLIP * _SURFACE_WEIGHT, out=scaled)
        return np.concatenate([scaled, _POINT_WORD_WEIGHT * rows[:, latent]], axis=1)

    @cached_property
    def _point_columns(self) -> tuple[Ints, Floats, Floats, slice]:
        surface = self.names[: self._surface]
        columns = np.array([i for i, name in enumerate(surface) if not name.startswith(_NOT_IN_POINTS)])
        first = self._surface + 1
        latent = slice(first, min(first + _POINT_DIMENSIONS, len(self.names) - 1))
        return columns, self.center[columns], _SURFACE_WEIGHT / self.scale[columns], latent

    def rows(self, requests: Sequence[PromptRequest]) -> Floats:
        """Return the features, shape (n, len(names))."""
        surface = self._surface
        rows = np.empty((len(requests), surface + self.words.width + 1))
        for start in range(0, len(requests), _CHUNK):
            chunk, part = requests[start : start + _CHUNK], rows[start : start + _CHUNK]
            texts = [request.prompt for request in chunk]
            words = [words_of(text) for text in texts]
            part[:, :_ARRIVAL] = [self.arrival.row(request) for request in chunk]
            lexical_rows(texts, words, out=part[:, _ARRIVAL:_LEXICAL])
            if self.form:
                part[:, _LEXICAL:surface] = [form_row(request) for request in chunk]
            part[:, surface:-1] = self.words.rows(words)
        if len(rows):
            vectors = embed(self.encoder, requests)
            space = smooth_space(rows[:, :surface], rows[:, surface:-1], vectors, self.center, self.scale)
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
        if self.form:
            meta["form"] = True
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
        return State(self.kind, meta, arrays, texts)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Rebuild fitted features.

        Raises
        ------
        ValueError
            The state was written for other features than this version computes.
        """
        meta, arrays = state.meta, state.arrays
        words = WordTable.from_arrays(decode_terms(state.texts["terms"]), arrays, number(meta, "word_intercept"))
        form = bool(meta.get("form", False))
        surface = _LEXICAL + (len(FORM_NAMES) if form else 0)
        scale = shaped(arrays, "scale", surface)
        if (scale <= 0).any():
            raise ValueError("its scale is not positive")
        encoder = _encoder(state)
        width = surface + (words.width - 1 if encoder is None else encoder.width)
        features = cls(
            ArrivalFeatures.from_meta(meta["arrival"]),
            words,
            shaped(arrays, "center", surface),
            scale,
            KernelRidge.from_arrays(arrays, "landmarks", "kernel_weights", width, meta["kernel"]),
            encoder,
            form,
        )
        if list(features.names) != meta["names"]:
            raise ValueError("it was trained on other features than this version of laps-sd computes")
        return features


class EmbeddingMap(FeatureMap):
    """The lexical features with a frozen text encoder, whose embedding replaces the words in the smooth score."""

    kind = "embedding"
    reads_encoder = True


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
