"""Fitting the features: a scikit-learn transformer from requests to a numeric matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from laps_sd.data import PromptRequest
from laps_sd.predictors.arrays import Bools, Floats, Ints
from laps_sd.predictors.censoring import normal_scores
from laps_sd.predictors.features.arrival import ArrivalFeatures
from laps_sd.predictors.features.encoder import Encoder
from laps_sd.predictors.features.form import form_row, shows_form
from laps_sd.predictors.features.kernel_fit import fit_kernel
from laps_sd.predictors.features.lexical import lexical_features, words_of
from laps_sd.predictors.features.matrix import EmbeddingMap, FeatureMap, embed, smooth_space
from laps_sd.predictors.features.word_table_fit import fit_word_table
from laps_sd.predictors.rows import as_requests, grouped_folds

_GAMMA, _PENALTY = 0.7, 0.8
_SILENT = 1e9


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
        Most landmarks of the smooth score; each costs a distance per prompt. Four times as many with an encoder,
        whose own cost hides them.
    seed : int
        Seed of the landmarks and the decomposition.

    Attributes
    ----------
    map_ : FeatureMap
        The fitted features.
    """

    def __init__(self, encoder: str | None = None, dimensions: int = 32, landmarks: int = 400, seed: int = 0) -> None:
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
        """Learn, and return the training rows with out-of-fold scores, shape (n, columns).

        ``folds`` are index arrays that partition the rows; five random ones when None.
        """
        requests, tokens = as_requests(X), np.maximum(np.asarray(y, dtype=np.float64), 1.0)
        cut: Bools = np.zeros(len(tokens), np.bool_) if censored is None else np.asarray(censored, np.bool_)
        parts = folds if folds is not None else grouped_folds(None, len(requests), 5, self.seed)
        target = normal_scores(tokens, cut)
        arrival = ArrivalFeatures.fit(requests, target, cut)
        words = [words_of(r.prompt) for r in requests]
        surface = np.array(
            [[*arrival.row(r), *lexical_features(r.prompt, w)] for r, w in zip(requests, words, strict=True)]
        )
        table, word_rows = fit_word_table(words, target, parts, dimensions=self.dimensions, seed=self.seed)
        encoder = None if self.encoder is None else Encoder.load(self.encoder)
        center, scale = surface.mean(axis=0), surface.std(axis=0) + 1e-9
        form = any(map(shows_form, requests))
        if form:
            columns = np.array([form_row(r) for r in requests])
            surface = np.column_stack([surface, columns])
            center = np.concatenate([center, columns.mean(axis=0)])
            scale = np.concatenate([scale, _scale(columns)])
        kernel, score = fit_kernel(
            smooth_space(surface, word_rows, embed(encoder, requests), center, scale),
            target,
            parts,
            gamma=_GAMMA,
            penalty=_PENALTY,
            most_landmarks=self.landmarks * (1 if encoder is None else 4),
            seed=self.seed,
        )
        kind = FeatureMap if encoder is None else EmbeddingMap
        self.map_ = kind(arrival, table, center, scale, kernel, encoder, form)
        return np.column_stack([surface, word_rows, score])

    def transform(self, X: Sequence[PromptRequest | str]) -> Floats:
        """Return features, shape (n, columns)."""
        check_is_fitted(self)
        return self.map_.rows(as_requests(X))


def _scale(columns: Floats) -> Floats:
    """Return standard deviations; what training never saw change says nothing about distances."""
    spread: Floats = columns.std(axis=0)
    return np.where(spread > 0, spread, _SILENT)
