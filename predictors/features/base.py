"""What a feature set is: numbers from what is known of a request at arrival."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

from numpy.typing import NDArray

from laps_sd.data import PromptRequest
from laps_sd.extensions import FEATURES
from laps_sd.predictors.arrays import Bools, Floats, Ints
from laps_sd.predictors.registered import registered, trained_with
from laps_sd.predictors.rows import FitOptions
from laps_sd.predictors.state import State

_PREFIX = "features/"


class FeatureSet(ABC):
    """Fitted features. Derive from it and register the class in the entry-point group ``laps_sd.features``.

    A server imports the module, so it must not need scikit-learn or SciPy at import; import what ``fit`` needs there.

    Attributes
    ----------
    kind : str
        Name under which the class is registered.
    reads_encoder : bool
        Whether ``options.encoder`` is read.
    """

    kind: ClassVar[str]
    reads_encoder: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def fit(
        cls,
        requests: Sequence[PromptRequest],
        tokens: Floats,
        censored: Bools,
        folds: Sequence[Ints],
        options: FitOptions,
    ) -> tuple[Self, Floats]:
        """Learn from finished requests.

        Parameters
        ----------
        requests : sequence of PromptRequest, length n
        tokens : array, shape (n,)
            Output lengths, tokens, at least 1.
        censored : array of bool, shape (n,)
            Which were cut.
        folds : sequence of index arrays
            Partition of the rows. A column that is learned from the lengths must hold, for each fold, what was learned
            from the others.
        options : FitOptions

        Returns
        -------
        features : FeatureSet
        rows : array, shape (n, columns)
            The training rows.
        """

    @abstractmethod
    def rows(self, requests: Sequence[PromptRequest]) -> Floats:
        """Return the features, shape (n, columns)."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """One name per column."""

    @property
    def score_columns(self) -> tuple[int, ...]:
        """Columns that grow with the expected length: the hazard is linear in them before trees refine it."""
        return ()

    @property
    def effect_columns(self) -> tuple[int, ...]:
        """Columns that may change the accept length whatever the prompt says: sizes, sampling parameters."""
        return ()

    def points(self, rows: Floats) -> Floats:
        """Return points, shape (n, d), whose Euclidean distance says how unlike two prompts are to the drafts.

        The acceptance predictor compares prompts by it; override it where columns have unlike scales.
        """
        return rows

    @abstractmethod
    def to_state(self) -> State:
        """Return the learned state as plain numbers and text; the text name ``trees`` is taken."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: State) -> Self:
        """Rebuild from :meth:`to_state`'s result; nothing in it is executed."""


class Nested(NamedTuple):
    """The state of features inside the state of the model that reads them."""

    meta: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    texts: dict[str, str]


def feature_set(name: str) -> type[FeatureSet]:
    """Return the registered feature set of this name.

    Raises
    ------
    InputError
        There is none.
    """
    return registered(FEATURES, name, FeatureSet)  # type: ignore[type-abstract]


def nested_state(features: FeatureSet) -> Nested:
    """Return what a model that reads ``features`` adds to its own state."""
    state = features.to_state()
    meta = {"features": state.meta, "feature_set": features.kind, "feature_package": FEATURES.package(features.kind)}
    return Nested(meta, {f"{_PREFIX}{name}": array for name, array in state.arrays.items()}, dict(state.texts))


def nested_features(state: State) -> FeatureSet | None:
    """Rebuild the features from the state of the model that reads them; None where it holds none."""
    meta: Mapping[str, Any] | None = state.meta.get("features")
    if meta is None:
        return None
    # Bundles of the first version do not name the set: only one of the two sets had an encoder.
    name = state.meta.get("feature_set") or ("embedding" if "encoder" in meta else "lexical")
    kind = trained_with(FEATURES, name, FeatureSet, state.meta.get("feature_package"))  # type: ignore[type-abstract]
    arrays = {n.removeprefix(_PREFIX): a for n, a in state.arrays.items() if n.startswith(_PREFIX)}
    return kind.from_state(State(name, meta, arrays, state.texts))
