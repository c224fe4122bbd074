"""A feature set: how long the prompt is, in characters and in words."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from laps_sd.data import PromptRequest
from laps_sd.predictors.features import FeatureSet
from laps_sd.predictors.state import State


class Sizes(FeatureSet):
    """Two logarithms; nothing is learned."""

    kind = "sizes"
    names = ("characters", "words")

    @classmethod
    def fit(
        cls, requests: Sequence[PromptRequest], tokens: Any, censored: Any, folds: Any, options: Any
    ) -> tuple[Self, Any]:
        """Return the features and the rows of the training requests."""
        return cls(), cls().rows(requests)

    def rows(self, requests: Sequence[PromptRequest]) -> Any:
        """Return a row for each request."""
        sizes = [[len(request.prompt), len(request.prompt.split())] for request in requests]
        return np.log1p(np.array(sizes, dtype=float).reshape(len(requests), 2))

    def to_state(self) -> State:
        """Return what a bundle keeps: nothing but the name."""
        return State(self.kind)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Rebuild in a server, from a bundle."""
        return cls()
