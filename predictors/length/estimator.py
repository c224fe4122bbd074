"""Length predictors while they are trained and evaluated: scikit-learn regressors that give whole curves."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from laps_sd.data import PromptRequest
from laps_sd.errors import InputError
from laps_sd.predictors.arrays import Bools, Floats, Ints
from laps_sd.predictors.length.buckets import quantiles
from laps_sd.predictors.length.curves import CurveModel, length_predictor
from laps_sd.predictors.rows import MIN_ROWS, FitOptions, as_requests
from laps_sd.scheduler import SurvivalCurve


class LengthEstimator(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """Base of the length estimators.

    ``fit(X, y, censored=None, groups=None)`` takes prompts (``PromptRequest`` or plain text) and output lengths in
    tokens. ``censored`` marks the requests that were cut before they ended; ``groups`` keeps related prompts on
    one side of every inner split. ``predict`` gives median lengths, ``predict_survival`` whole curves.

    Attributes
    ----------
    model_ : CurveModel
        What a bundle stores and a server runs.
    """

    model_: CurveModel

    @abstractmethod
    def _fit(
        self, requests: list[PromptRequest], tokens: Floats, cut: Bools, groups: NDArray[Any] | None
    ) -> CurveModel:
        """Learn from checked rows: lengths of at least 1 token, at least one of them not cut."""

    def fit(
        self,
        X: Sequence[PromptRequest | str],
        y: NDArray[Any] | Sequence[int],
        censored: NDArray[Any] | None = None,
        groups: NDArray[Any] | None = None,
    ) -> Self:
        """Learn from prompts ``X`` and lengths ``y`` (tokens).

        Raises
        ------
        InputError
            Too few rows, lengths that are not finite numbers of at least 0, or no request that ended by itself.
        """
        self.model_ = self._fit(*check_lengths(X, y, censored), groups)
        return self

    @property
    def edges_(self) -> Ints:
        """Bucket edges, tokens, shape (B + 1,)."""
        return self.model_.edges

    def predict_survival(self, X: Sequence[PromptRequest | str]) -> Floats:
        """Return P(length > edge) for every prompt and edge, shape (n, B + 1)."""
        check_is_fitted(self)
        requests = as_requests(X)
        return self.model_.survival(requests) if requests else np.empty((0, len(self.edges_)))

    def predict_curves(self, X: Sequence[PromptRequest | str]) -> list[SurvivalCurve]:
        """Return one survival curve per prompt."""
        return [SurvivalCurve(self.edges_, row) for row in self.predict_survival(X)]

    def predict(self, X: Sequence[PromptRequest | str]) -> Floats:
        """Return median output lengths, tokens, shape (n,)."""
        return quantiles(self.predict_survival(X), self.edges_, 0.5)


class RegisteredLength(LengthEstimator):
    """Any registered length predictor as an estimator.

    Parameters
    ----------
    predictor : str
        Its name.
    features, encoder, seed
        As in ``FitOptions``.
    """

    def __init__(
        self, predictor: str = "hazard", features: str = "lexical", encoder: str | None = None, seed: int = 0
    ) -> None:
        self.predictor = predictor
        self.features = features
        self.encoder = encoder
        self.seed = seed

    def _fit(
        self, requests: list[PromptRequest], tokens: Floats, cut: Bools, groups: NDArray[Any] | None
    ) -> CurveModel:
        options = FitOptions(self.features, self.encoder, self.seed)
        return length_predictor(self.predictor).fit(requests, tokens, cut, groups, options)


def check_lengths(
    X: Sequence[PromptRequest | str], y: NDArray[Any] | Sequence[int], censored: NDArray[Any] | None
) -> tuple[list[PromptRequest], Floats, Bools]:
    """Check training rows and return them as requests, lengths (tokens) and censoring marks."""
    requests, lengths = as_requests(X), np.asarray(y, dtype=np.float64)
    if len(requests) != len(lengths):
        raise InputError(f"{len(requests)} prompts but {len(lengths)} output lengths; give one length per prompt")
    cut = np.zeros(len(lengths), dtype=np.bool_) if censored is None else np.asarray(censored, dtype=np.bool_)
    if len(cut) != len(lengths):
        raise InputError(f"{len(cut)} censoring marks but {len(lengths)} output lengths; give one mark per prompt")
    if len(requests) < MIN_ROWS:
        raise InputError(f"only {len(requests)} usable rows; a length model needs at least {MIN_ROWS}: collect more")
    if not np.isfinite(lengths).all() or (lengths < 0).any():
        raise InputError("an output length is missing, not a number or negative; remove or repair those rows")
    if cut.all():
        raise InputError(
            "every request was cut (finish_reason length or abort), so no ending was seen; "
            "collect with a larger max_new_tokens"
        )
    return requests, np.maximum(lengths, 1.0), cut
