"""What a request brings besides its text: sampling parameters, model, history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log1p
from typing import Any, ClassVar, Self

import numpy as np

from laps_sd.data import PromptRequest
from laps_sd.predictors.arrays import Bools, Floats, number

#: Rows of a model's own before its mean length counts as much as everybody's.
_MODEL_PRIOR_ROWS = 20
#: No typical value read from a bundle may be larger.
_MOST = 1e9


class ArrivalFeatures:
    """Features of a request's parameters; what is unknown takes the value that was typical in training.

    Parameters
    ----------
    defaults : mapping
        Typical temperature and cap (tokens), and prompt tokens per byte.
    models : mapping of str to float
        Mean length score of each model, shrunken towards 0; an unknown model gets 0.
    use_cap : bool
        Whether ``max_new_tokens`` is read; see :meth:`fit`.
    """

    NAMES: ClassVar[tuple[str, ...]] = ("log_prompt_tokens", "log_turns", "temperature", "log_cap", "model_score")

    def __init__(self, defaults: Mapping[str, float], models: Mapping[str, float], use_cap: bool) -> None:
        self.defaults = dict(defaults)
        self.models = dict(models)
        self.use_cap = use_cap

    @classmethod
    def fit(cls, requests: Sequence[PromptRequest], target: Floats, censored: Bools) -> Self:
        """Learn the typical values and the models' levels.

        Some sources know the cap only of the requests that hit it. There its presence tells the outcome, so it is
        read only when the requests that carry it are not cut much more often than all are.
        """
        capped = np.array([r.max_new_tokens is not None for r in requests])
        honest = bool(capped.any()) and float(censored[capped].mean()) <= 1.5 * float(censored.mean()) + 0.01
        per_byte = [r.prompt_tokens / (len(r.prompt.encode()) + 8) for r in requests if r.prompt_tokens]
        defaults = {
            "temperature": _median([r.temperature for r in requests if r.temperature is not None], 0.0),
            "cap": _median([r.max_new_tokens for r in requests if r.max_new_tokens is not None], 0.0),
            "tokens_per_byte": _median(per_byte, 0.25),
        }
        names = np.array([r.model or "" for r in requests])
        models = {
            str(name): float(target[names == name].sum() / ((names == name).sum() + _MODEL_PRIOR_ROWS))
            for name in np.unique(names)
            if name
        }
        return cls(defaults, models, honest)

    def row(self, request: PromptRequest) -> list[float]:
        """Return the features named in ``NAMES``."""
        tokens = request.prompt_tokens
        if not tokens:  # 0 in a record means not known
            tokens = round(self.defaults["tokens_per_byte"] * (len(request.prompt.encode("utf-8", "replace")) + 8))
        temperature = self.defaults["temperature"] if request.temperature is None else request.temperature
        cap = self.defaults["cap"] if request.max_new_tokens is None else request.max_new_tokens
        return [
            log1p(tokens),
            log1p(request.turns),
            float(temperature),
            log1p(cap) if self.use_cap else 0.0,
            self.models.get(request.model, 0.0) if request.model else 0.0,
        ]

    def to_meta(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"defaults": self.defaults, "models": self.models, "use_cap": self.use_cap}

    @classmethod
    def from_meta(cls, meta: Mapping[str, Any]) -> Self:
        """Rebuild from :meth:`to_meta`'s values."""
        typical, models = meta["defaults"], meta["models"]
        defaults = {name: number(typical, name, 0.0, _MOST) for name in ("temperature", "cap", "tokens_per_byte")}
        return cls(defaults, {name: number(models, name) for name in models}, bool(meta["use_cap"]))


def _median(values: Sequence[float], otherwise: float) -> float:
    return float(np.median(values)) if values else otherwise
