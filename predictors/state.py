"""What an estimator writes into a bundle (numbers and text, never code), and the process that reads it."""

from __future__ import annotations

import os
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


_FORKED: list[bool] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _FORKED.append(True))


def forked() -> bool:
    """Whether this process was forked by one that had imported the predictors: its OpenMP threads are not here."""
    return bool(_FORKED)
