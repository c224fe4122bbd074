"""What a length predictor is: learned from finished requests, and a survival curve for each new one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from laps_sd.data import PromptRequest
from laps_sd.extensions import PREDICTORS
from laps_sd.predictors.arrays import Bools, Floats, Ints
from laps_sd.predictors.features.base import FeatureSet
from laps_sd.predictors.registered import registered
from laps_sd.predictors.rows import FitOptions
from laps_sd.predictors.state import State
from laps_sd.scheduler import SurvivalCurve


class CurveModel(ABC):
    """A fitted length model. Derive from it and register the class in the entry-point group ``laps_sd.predictors``.

    A server imports the module, so it must not need scikit-learn or SciPy at import (100 MB and seconds); import what
    ``fit`` needs there.

    Attributes
    ----------
    kind : str
        Name under which the class is registered.
    reads_features, reads_encoder : bool
        Whether ``options.features`` and ``options.encoder`` are read.
    edges : array of int64, shape (B + 1,)
        Bucket edges, tokens: strictly increasing from 0, at most `laps_sd.scheduler.survival.MAX_EDGES`.
    features : FeatureSet or None
        Fitted features, where it reads any: the acceptance predictor shares them.
    """

    kind: ClassVar[str]
    reads_features: ClassVar[bool] = False
    reads_encoder: ClassVar[bool] = False
    edges: Ints
    features: FeatureSet | None = None

    @classmethod
    @abstractmethod
    def fit(
        cls,
        requests: Sequence[PromptRequest],
        tokens: Floats,
        censored: Bools,
        groups: NDArray[Any] | None,
        options: FitOptions,
    ) -> Self:
        """Learn from finished requests, checked by :func:`laps_sd.predictors.length.estimator.check_lengths`.

        Parameters
        ----------
        requests : sequence of PromptRequest, length n
        tokens : array, shape (n,)
            Output lengths, tokens, at least 1; where censored, the length at the cut.
        censored : array of bool, shape (n,)
            Which were cut before they ended: never all of them.
        groups : array, shape (n,), optional
            Labels of related prompts, which belong on one side of every split.
        options : FitOptions
        """

    @abstractmethod
    def survival(self, requests: Sequence[PromptRequest]) -> Floats:
        """Return P(length > edge) for every request and edge, shape (n, B + 1)."""

    @abstractmethod
    def to_state(self) -> State:
        """Return the learned state as plain numbers and text."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: State) -> Self:
        """Rebuild from :meth:`to_state`'s result; nothing in it is executed."""

    def curves(self, requests: Sequence[PromptRequest]) -> list[SurvivalCurve]:
        """Return one survival curve per request."""
        return SurvivalCurve.batch(self.edges, self.survival(requests))

    def survival_of_rows(self, rows: Floats) -> Floats:
        """Return what :meth:`survival` returns from rows of ``features``, for models that read any."""
        raise NotImplementedError(f"the length predictor {self.kind} reads no features")


def length_predictor(name: str) -> type[CurveModel]:
    """Return the registered length predictor of this name.

    Raises
    ------
    InputError
        There is none.
    """
    return registered(PREDICTORS, name, CurveModel)  # type: ignore[type-abstract]
