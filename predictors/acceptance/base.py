"""What an acceptance predictor is: learned from finished requests, a prior of the accept length for each new one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from laps_sd.data import PromptRequest, RequestRecord
from laps_sd.extensions import ACCEPTANCE_PREDICTORS
from laps_sd.predictors.arrays import Floats
from laps_sd.predictors.features.base import FeatureSet
from laps_sd.predictors.registered import registered
from laps_sd.predictors.rows import FitOptions
from laps_sd.predictors.state import State
from laps_sd.scheduler.posterior.settings import PosteriorSettings

#: Tokens per verify step and weight of a prior beyond which no scheduler believes one (`laps_sd.scheduler.Prediction`).
MOST_TOKENS, MOST_STRENGTH = 1e4, 1e6
#: A prior of less weight is none.
LEAST_STRENGTH = 1e-6


@dataclass(frozen=True)
class AcceptancePrior:
    """What is believed about one request's accept length at arrival.

    Attributes
    ----------
    mean : float
        Tokens per verify step, bonus token included.
    strength : float
        κ, the weight of that mean in verify steps.
    settings : PosteriorSettings
        Constants of the posterior, fitted on held-out requests of the same run.
    drafts : int, optional
        Most drafts one step accepts.
    unseeded_mean, unseeded_strength : float
        The prior of the same run without the prompt, for comparison.
    """

    mean: float
    strength: float
    settings: PosteriorSettings
    drafts: int | None
    unseeded_mean: float
    unseeded_strength: float


class AcceptanceModel(ABC):
    """A fitted acceptance model. Derive from it and register the class in the group ``laps_sd.predictors``.

    The entry point is called ``acceptance.NAME``. A server imports the module, so it must not need scikit-learn or
    SciPy at import; import what ``fit`` needs there.

    Attributes
    ----------
    kind : str
        NAME, under which the class is registered.
    features : FeatureSet or None
        Fitted features, where it reads any.
    """

    kind: ClassVar[str]
    features: FeatureSet | None = None

    @classmethod
    @abstractmethod
    def fit(
        cls,
        records: Sequence[RequestRecord],
        features: FeatureSet | None,
        options: FitOptions,
        groups: Sequence[str] | None = None,
    ) -> AcceptanceModel:
        """Learn from finished requests with prompt text, of which some or all may carry no acceptance data.

        Parameters
        ----------
        records : sequence of RequestRecord
        features : FeatureSet, optional
            Fitted prompt features to share with the length model.
        options : FitOptions
        groups : sequence of str, optional
            ``laps_sd.data.group_names`` of the records, where the caller knows them.

        Returns
        -------
        AcceptanceModel
            One of this class, or another that makes do with what there is.
        """

    @property
    def learned(self) -> bool:
        """Whether training saw acceptance data, so that there is something to evaluate."""
        return True

    @abstractmethod
    def priors(
        self,
        requests: Sequence[PromptRequest],
        *,
        draft: str | None = None,
        max_correct_drafts: int | None = None,
        rows: Floats | None = None,
    ) -> list[AcceptancePrior]:
        """Return what is believed about each request at arrival.

        Parameters
        ----------
        requests : sequence of PromptRequest, length n
        draft : str, optional
            Draft algorithm and model of the server; the one trained on when None.
        max_correct_drafts : int, optional
            Most drafts a verify step can accept; that of training when None.
        rows : array, shape (n, columns), optional
            ``features.rows(requests)`` when the caller has them already.
        """

    def predict_prior(
        self,
        requests: Sequence[PromptRequest],
        *,
        draft: str | None = None,
        max_correct_drafts: int | None = None,
        rows: Floats | None = None,
    ) -> tuple[Floats, Floats]:
        """Return prior means (tokens per step) and strengths (steps), each of shape (n,); see :meth:`priors`."""
        found = self.priors(requests, draft=draft, max_correct_drafts=max_correct_drafts, rows=rows)
        return np.array([p.mean for p in found]), np.array([p.strength for p in found])

    def posterior_settings(
        self, draft: str | None = None, max_correct_drafts: int | None = None, model: str | None = None
    ) -> PosteriorSettings | None:
        """Return the constants of the posterior that were fitted with the priors; None where none were."""
        return None

    @abstractmethod
    def to_state(self, with_features: bool = True) -> State:
        """Return the learned state; without the features where the bundle holds them already."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: State, features: FeatureSet | None = None) -> Self:
        """Rebuild from :meth:`to_state`'s result; ``features`` are those that the state was written without."""


def acceptance_predictor(name: str) -> type[AcceptanceModel]:
    """Return the registered acceptance predictor of this name.

    Raises
    ------
    InputError
        There is none.
    """
    return registered(ACCEPTANCE_PREDICTORS, name, AcceptanceModel)  # type: ignore[type-abstract]
