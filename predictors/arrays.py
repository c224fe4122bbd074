"""Array types of the predictors, and the checks of arrays and numbers that come from a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def shaped(arrays: Mapping[str, NDArray[Any]], name: str, *shape: int | None, kind: type = np.float64) -> NDArray[Any]:
    """Return an array of a state when it is as it must be.

    Parameters
    ----------
    arrays : mapping of str to array
    name : str
    *shape : int or None
        Expected length along each axis, 1 or more; None: any.
    kind : type
        Expected type of its numbers.

    Raises
    ------
    ValueError
        There is none of this name, or it has another shape or type.
    """
    array = arrays.get(name)
    if array is None:
        raise ValueError(f"it holds no array {name!r}")
    fits = array.ndim == len(shape) and all(
        found > 0 and wanted in (None, found) for found, wanted in zip(array.shape, shape, strict=True)
    )
    if not fits or array.dtype != kind:
        raise ValueError(
            f"its array {name!r} has shape {array.shape} of {array.dtype}, expected {shape} of {kind.__name__}"
        )
    return array


def number(values: Mapping[str, Any], name: str, low: float = -1e30, high: float = 1e30) -> float:
    """Return a number of a state when it is one from ``low`` to ``high``; ValueError otherwise."""
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ValueError(f"its {name} is not a number from {low:g} to {high:g}: {value!r:.40}")
    return float(value)
