"""How MLflow loads a logged bundle: by this module's name, so that no pickled object is ever run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from laps_sd.data import PromptRequest
from laps_sd.predictors import PredictorBundle

#: Columns of the result, in order.
OUTPUTS = ("length_mean", "length_p10", "length_p50", "length_p90", "accept_length", "accept_strength")


class BundleModel:
    """MLflow's ``predict`` for a bundle: a data frame of requests in, a data frame of numbers out."""

    def __init__(self, bundle: PredictorBundle) -> None:
        self.bundle = bundle

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> Any:
        """Predict one row per request.

        Parameters
        ----------
        model_input : pandas.DataFrame
            Column ``prompt``, and as known ``prompt_tokens``, ``max_new_tokens``, ``temperature``, ``model``,
            ``turns``.
        params : mapping, optional
            Not used.

        Returns
        -------
        pandas.DataFrame
            Columns ``OUTPUTS``: tokens, tokens, tokens, tokens, tokens per verify step, verify steps.
        """
        import pandas as pd

        requests = [request_of(row) for row in model_input.to_dict("records")]
        rows = []
        for p in self.bundle.predict(requests):
            low, middle, high = (p.length.quantile(q) for q in (0.1, 0.5, 0.9))
            rows.append((p.length.mean(), low, middle, high, p.accept_length, p.accept_strength))
        return pd.DataFrame(np.array(rows, dtype=np.float64).reshape(-1, len(OUTPUTS)), columns=list(OUTPUTS))


def request_of(row: Mapping[str, Any]) -> PromptRequest:
    """Return a request from a row of a table, in which what is unknown may be missing, None or NaN."""
    known = {k: v for k, v in row.items() if v is not None and v == v}
    whole: dict[str, Any] = {k: int(known[k]) for k in ("prompt_tokens", "max_new_tokens", "turns") if k in known}
    temperature = float(known["temperature"]) if "temperature" in known else None
    model = str(known["model"]) if "model" in known else None
    return PromptRequest(prompt=str(known.get("prompt", "")), temperature=temperature, model=model, **whole)


def _load_pyfunc(data_path: str) -> BundleModel:
    """MLflow calls this with the folder that was logged."""
    return BundleModel(PredictorBundle.load(data_path))
