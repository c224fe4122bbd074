"""What an estimator writes into a bundle: numbers and text, never code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True)
class State:
    """The learned state of one estimator.

    Attributes
    ----------
    kind : str
        Name of the estimator, as in ``laps_sd.predictors.bundle``.
    meta : mapping
        JSON values: parameters and small learned numbers.
    arrays : mapping of str to array
        Numeric arrays; stored with ``allow_pickle=False``.
    texts : mapping of str to str
        LightGBM models in LightGBM's own text form.
    """

    kind: str
    meta: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
