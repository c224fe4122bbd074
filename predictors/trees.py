"""A trained LightGBM model as a function of rows: one thread, and fast for a single row.

``Booster.predict`` spends about 100 µs per call on checks and copies, more than the trees themselves. LightGBM's C
interface has a call made for single rows (``LGBM_BoosterPredictForMatSingleRowFast``), which needs a few.
"""

from __future__ import annotations

import ctypes
import weakref
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laps_sd.predictors.arrays import Floats
from laps_sd.predictors.tree_text import checked_text

_RAW_SCORE = 1  # C_API_PREDICT_RAW_SCORE
_FLOAT64 = 1  # C_API_DTYPE_FLOAT64
#: The server has other work for its cores, and one prompt is too little to share out.
_PARAMETERS = b"num_threads=1 verbosity=-1"


def repeatable(seed: int) -> dict[str, Any]:
    """Return parameters of LightGBM's training by which a run can be repeated to the bit: one thread, fixed seeds."""
    return {"num_threads": 1, "deterministic": True, "force_row_wise": True, "verbosity": -1, "seed": seed}


def _library() -> ctypes.CDLL:
    """Load LightGBM's library alone: its Python package imports scikit-learn and pandas, 100 MB and seconds."""
    spec = find_spec("lightgbm")
    if spec is None or spec.origin is None:
        raise ImportError("LightGBM is not installed: pip install lightgbm")
    found = sorted(Path(spec.origin).parent.glob("**/lib_lightgbm.*"))
    if not found:
        raise ImportError(f"no lib_lightgbm beside {spec.origin}; install LightGBM from a wheel")
    library = ctypes.CDLL(str(found[0]))
    library.LGBM_GetLastError.restype = ctypes.c_char_p
    return library


LIB = _library()


class Trees:
    """A LightGBM model read from its text form.

    Parameters
    ----------
    text : str
        What ``Booster.model_to_string`` returned. LightGBM is given what :mod:`laps_sd.predictors.tree_text` understood
        of it and nothing else, because its own reader believes everything.
    outputs : int
        Trees per boosting round: numbers per row.

    Attributes
    ----------
    rounds : int
        Boosting rounds.
    features : int
        Columns of a row.

    Raises
    ------
    ValueError
        The text is not a LightGBM model of trees that can be followed, or has another number of outputs.
    """

    def __init__(self, text: str, outputs: int = 1) -> None:
        checked = checked_text(text, outputs)
        self.text = text
        self.outputs = outputs
        self._model = ctypes.c_void_p()
        rounds = ctypes.c_int()
        _call(LIB.LGBM_BoosterLoadModelFromString(checked.encode(), ctypes.byref(rounds), ctypes.byref(self._model)))
        weakref.finalize(self, LIB.LGBM_BoosterFree, self._model)
        self.rounds = rounds.value
        self.features = self._count(LIB.LGBM_BoosterGetNumFeature)
        if self._count(LIB.LGBM_BoosterGetNumClasses) != outputs:
            raise ValueError(f"the LightGBM model does not give {outputs} numbers per row")
        self._one = ctypes.c_void_p()
        _call(
            LIB.LGBM_BoosterPredictForMatSingleRowFastInit(
                self._model, _RAW_SCORE, 0, -1, _FLOAT64, self.features, _PARAMETERS, ctypes.byref(self._one)
            )
        )
        weakref.finalize(self, LIB.LGBM_FastConfigFree, self._one)

    def raw(self, rows: NDArray[np.float64]) -> Floats:
        """Return the raw scores of ``rows``, shape (n, features), as an array of shape (n, outputs)."""
        if rows.ndim != 2 or rows.shape[1] != self.features:
            raise ValueError(f"rows have shape {rows.shape}, the trees read {self.features} features")
        data = np.ascontiguousarray(rows, dtype=np.float64)
        scores = np.empty((len(data), self.outputs))
        length = ctypes.c_int64()
        out = (ctypes.byref(length), ctypes.c_void_p(scores.ctypes.data))
        source = ctypes.c_void_p(data.ctypes.data)
        if len(data) == 1:
            _call(LIB.LGBM_BoosterPredictForMatSingleRowFast(self._one, source, *out))
        elif len(data):
            shape = (ctypes.c_int32(len(data)), ctypes.c_int32(self.features), ctypes.c_int(1))
            call = (_RAW_SCORE, 0, -1, _PARAMETERS)
            _call(LIB.LGBM_BoosterPredictForMat(self._model, source, _FLOAT64, *shape, *call, *out))
        return scores

    def _count(self, function: Any) -> int:
        number = ctypes.c_int()
        _call(function(self._model, ctypes.byref(number)))
        return number.value


def _call(status: int) -> None:
    if status != 0:
        message: bytes = LIB.LGBM_GetLastError()
        raise ValueError(f"LightGBM: {message.decode('utf-8', 'replace')}")
