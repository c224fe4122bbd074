"""From a request to numbers: the features that the hazard model reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from laps_sd.data import PromptRequest
from laps_sd.predictors.arrival import ArrivalFeatures
from laps_sd.predictors.buckets import Bools, Floats, Ints
from laps_sd.predictors.encoder import Encoder
from laps_sd.predictors.kernel import KernelRidge
from laps_sd.predictors.lexical import LEXICAL_NAMES, lexical_features, words_of
from laps_sd.predictors.prompts import as_requests
from laps_sd.predictors.state import State
from laps_sd.predictors.target import normal_scores
from laps_sd.predictors.wordtable import WordTable, decode_terms, encode_terms

#: Standardised features beyond this many standard deviations say no more.
_CLIP = 4.0
#: Weights of the lexical features and the latent word dimensions beside a unit-length embedding.
_LEXICAL_WEIGHT, _WORD_WEIGHT = 0.08, 1.5
_GAMMA, _PENALTY = 0.7, 0.8


class PromptFeatures(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """Turn requests into a numeric matrix.

    Like scikit-learn's ``TargetEncoder``, ``fit_transform`` differs from ``fit`` then ``transform``: scores that
    were learned from the target come out-of-fold, so that the next learner sees them as honest as they will be.

    Parameters
    ----------
    encoder : str, optional
        Folder (or Hugging Face name) of a text encoder; its embedding joins the smooth score when given.
    dimensions : int
        Latent dimensions of the word table.
    landmarks : int
        Most landmarks of the kernel score; each costs a distance per prompt.
    seed : int
        Seed of the landmarks and the decomposition.

    Attributes
    ----------
    names_ : tuple of str
        One name per column.
    """

    def __init__(self, encoder: str | None = None, dimensions: int = 48, landmarks: int = 400, seed: int = 0) -> None:
        self.encoder = encoder
        self.dimensions = dimensions
        self.landmarks = landmarks
        self.seed = seed

    def fit(
        self,
        X: Sequence[PromptRequest | str],
        y: NDArray[Any] | Sequence[float],
        censored: NDArray[Any] | None = None,
        folds: Sequence[Ints] | None = None,
    ) -> Self:
        """Learn words, scales and scores from requests ``X`` and lengths ``y`` (tokens)."""
        self.fit_transform(X, y, censored, folds)
        return self

    def fit_transform(
        self,
        X: Sequence[PromptRequest | str],
        y: NDArray[Any] | Sequence[float],
        censored: NDArray[Any] | None = None,
        folds: Sequence[Ints] | None = None,
    ) -> Floats:
        """Learn, and return the training rows with out-of-fold scores, shape (n, len(names_)).

        ``folds`` are index arrays that partition the rows; five random ones when None.
        """
        requests, tokens = as_requests(X), np.maximum(np.asarray(y, dtype=np.float64), 1.0)
        cut: Bools = np.zeros(len(tokens), np.bool_) if censored is None else np.asarray(censored, np.bool_)
        parts = folds if folds is not None else _random_folds(len(requests), self.seed)
        target = normal_scores(tokens, cut)
        self.arrival_ = ArrivalFeatures.fit(requests, target, cut)
        words = [words_of(r.prompt) for r in requests]
        surface = np.array([lexical_features(r.prompt, w) for r, w in zip(requests, words, strict=True)])
        self.words_, word_rows = WordTable.fit(words, target, parts, dimensions=self.dimensions, seed=self.seed)
        self.encoder_ = None if self.encoder is None else Encoder.load(self.encoder)
        arrival = np.array([self.arrival_.row(r) for r in requests])
        cheap = np.column_stack([arrival, surface])
        self.center_, self.scale_ = cheap.mean(axis=0), cheap.std(axis=0) + 1e-9
        smooth = self._smooth_rows(cheap, word_rows, self._embed(requests))
        self.kernel_, score = KernelRidge.fit(
            smooth,
            target,
            parts,
            gamma=_GAMMA,
            penalty=_PENALTY,
            most_landmarks=self.landmarks if self.encoder is None else 4 * self.landmarks,
            seed=self.seed,
        )
        self.names_ = (
            *ArrivalFeatures.NAMES,
            *LEXICAL_NAMES,
            "word_score",
            *(f"word_{i}" for i in range(self.dimensions)),
            "smooth_score",
        )
        return np.column_stack([cheap, word_rows, score])

    def transform(self, X: Sequence[PromptRequest | str]) -> Floats:
        """Return features, shape (n, len(names_))."""
        check_is_fitted(self)
        requests = as_requests(X)
        if not requests:
            return np.empty((0, len(self.names_)))
        width = len(ArrivalFeatures.NAMES)
        cheap = np.empty((len(requests), len(self.center_)))
        word_rows = np.empty((len(requests), self.words_.width))
        for i, request in enumerate(requests):
            words = words_of(request.prompt)
            cheap[i, :width] = self.arrival_.row(request)
            cheap[i, width:] = lexical_features(request.prompt, words)
            word_rows[i] = self.words_.row(words)
        score = self.kernel_.predict(self._smooth_rows(cheap, word_rows, self._embed(requests)))
        return np.column_stack([cheap, word_rows, score])

    def get_feature_names_out(self, _input: object = None) -> NDArray[np.str_]:
        """Return the column names."""
        check_is_fitted(self)
        return np.array(self.names_)

    def _embed(self, requests: Sequence[PromptRequest]) -> Floats | None:
        return None if self.encoder_ is None else self.encoder_.embed([r.prompt for r in requests])

    def _smooth_rows(self, cheap: Floats, word_rows: Floats, embedding: Floats | None) -> Floats:
        """What the kernel measures distances in: scaled surface features and word dimensions, or the embedding."""
        scaled = np.clip((cheap - self.center_) / self.scale_, -_CLIP, _CLIP) * _LEXICAL_WEIGHT
        other = _WORD_WEIGHT * word_rows[:, 1:] if embedding is None else embedding
        return np.column_stack([scaled, other])

    def to_state(self) -> State:
        """Return the learned state."""
        meta = {
            "parameters": {"dimensions": self.dimensions, "landmarks": self.landmarks, "seed": self.seed},
            "arrival": self.arrival_.to_meta(),
            "word_intercept": self.words_.intercept,
            "kernel": {"mean": self.kernel_.mean, "gamma": self.kernel_.gamma},
            "names": list(self.names_),
        }
        arrays = {
            "center": self.center_,
            "scale": self.scale_,
            "word_table": self.words_.table,
            "word_squares": self.words_.squares,
            "landmarks": self.kernel_.landmarks,
            "kernel_weights": self.kernel_.weights,
        }
        texts = {"terms": encode_terms(self.words_.vocabulary)}
        if self.encoder_ is not None:
            encoder = self.encoder_.to_state()
            meta["encoder"] = dict(encoder.meta)
            arrays.update({f"encoder/{name}": array for name, array in encoder.arrays.items()})
            texts.update({f"encoder_{name}": text for name, text in encoder.texts.items()})
        return State("prompt_features", meta, arrays, texts)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Rebuild fitted features."""
        meta, arrays = state.meta, state.arrays
        features = cls(**meta["parameters"])
        features.arrival_ = ArrivalFeatures.from_meta(meta["arrival"])
        vocabulary = decode_terms(state.texts["terms"])
        table = arrays["word_table"]
        if len(table) != len(vocabulary):
            raise ValueError("the word table does not fit its vocabulary")
        features.words_ = WordTable(vocabulary, table, arrays["word_squares"], meta["word_intercept"])
        features.center_, features.scale_ = arrays["center"], arrays["scale"]
        features.kernel_ = KernelRidge(arrays["landmarks"], arrays["kernel_weights"], **meta["kernel"])
        features.names_ = tuple(meta["names"])
        features.encoder_ = None
        if "encoder" in meta:
            weights = {name.removeprefix("encoder/"): a for name, a in arrays.items() if name.startswith("encoder/")}
            texts = {name.removeprefix("encoder_"): t for name, t in state.texts.items() if name.startswith("encoder_")}
            features.encoder_ = Encoder.from_state(State("encoder", meta["encoder"], weights, texts))
            features.encoder = meta["encoder"]["origin"]
        return features


def _random_folds(n: int, seed: int) -> list[Ints]:
    order = np.random.default_rng(seed).permutation(n)
    return [np.sort(part) for part in np.array_split(order, min(5, n))]
