"""What every length model is: a scikit-learn regressor that also gives a survival curve per prompt."""

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
from laps_sd.predictors.buckets import Bools, Floats, Ints
from laps_sd.predictors.prompts import as_requests
from laps_sd.predictors.state import State
from laps_sd.scheduler import SurvivalCurve

#: Fewer rows than this cannot be split, calibrated and judged.
MIN_ROWS = 20


class LengthModel(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """Base of the length models.

    ``fit(X, y, censored=None, groups=None)`` takes prompts (``PromptRequest`` or plain text) and output lengths in
    tokens. ``censored`` marks the requests that were cut before they ended; ``groups`` keeps related prompts on
    one side of every inner split. ``predict`` gives median lengths, ``predict_survival`` whole curves.

    Attributes
    ----------
    edges_ : array of int64, shape (B + 1,)
        Bucket edges, tokens.
    """

    kind: str
    edges_: Ints

    @abstractmethod
    def fit(
        self,
        X: Sequence[PromptRequest | str],
        y: NDArray[Any] | Sequence[int],
        censored: NDArray[Any] | None = None,
        groups: NDArray[Any] | None = None,
    ) -> Self:
        """Learn from prompts ``X`` and lengths ``y`` (tokens)."""

    @abstractmethod
    def _survival(self, requests: Sequence[PromptRequest]) -> Floats:
        """Return S at the edges, shape (n, B + 1); the model is fitted and ``requests`` is not empty."""

    @abstractmethod
    def to_state(self) -> State:
        """Return the learned state as plain numbers and text."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: State) -> Self:
        """Rebuild a fitted model from :meth:`to_state`'s result; nothing in it is executed."""

    def predict_survival(self, X: Sequence[PromptRequest | str]) -> Floats:
        """Return P(length > edge) for every prompt and edge, shape (n, B + 1)."""
        check_is_fitted(self)
        requests = as_requests(X)
        if not requests:
            return np.empty((0, len(self.edges_)))
        return self._survival(requests)

    def predict_curves(self, X: Sequence[PromptRequest | str]) -> list[SurvivalCurve]:
        """Return one survival curve per prompt."""
        survival = self.predict_survival(X)
        return [SurvivalCurve(edges=self.edges_, survival=row) for row in survival]

    def predict(self, X: Sequence[PromptRequest | str]) -> Floats:
        """Return median output lengths, tokens, shape (n,)."""
        return np.array([curve.quantile(0.5) for curve in self.predict_curves(X)], dtype=np.float64)


def check_lengths(
    X: Sequence[PromptRequest | str], y: NDArray[Any] | Sequence[int], censored: NDArray[Any] | None
) -> tuple[list[PromptRequest], Floats, Bools]:
    """Check training rows and return them as requests, lengths (tokens) and censoring marks.

    Raises
    ------
    InputError
        Too few rows, lengths that are not finite numbers of at least 0, or no request that ended by itself.
    """
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
