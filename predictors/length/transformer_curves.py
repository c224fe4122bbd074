"""The fitted transformer: a fine-tuned encoder with a linear head on the hazard's scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, cast

from numpy.typing import NDArray

from laps_sd.data import PromptRequest
from laps_sd.predictors.arrays import Bools, Floats, shaped
from laps_sd.predictors.features.encoder import Encoder, default_encoder
from laps_sd.predictors.length.buckets import survival_of
from laps_sd.predictors.length.calibration import Calibration
from laps_sd.predictors.length.curves import CurveModel
from laps_sd.predictors.length.hazard_curves import HazardGrid
from laps_sd.predictors.rows import FitOptions
from laps_sd.predictors.state import State


class TransformerCurves(CurveModel):
    """Survival curves from an encoder.

    Parameters
    ----------
    encoder : Encoder
        Fine-tuned.
    head : array, shape (d + 1, K)
        Weights of the embedding's components in the scores; the last row is the constant.
    grid : HazardGrid
    calibration : Calibration
    """

    kind = "transformer"
    reads_encoder = True

    def __init__(self, encoder: Encoder, head: Floats, grid: HazardGrid, calibration: Calibration) -> None:
        self.encoder = encoder
        self.head = head
        self.grid = grid
        self.calibration = calibration
        self.edges = grid.edges

    @classmethod
    def fit(
        cls,
        requests: Sequence[PromptRequest],
        tokens: Floats,
        censored: Bools,
        groups: NDArray[Any] | None,
        options: FitOptions,
    ) -> Self:
        """Fine-tune an encoder; see :meth:`CurveModel.fit`."""
        from laps_sd.predictors.length.transformer import TransformerLength  # not above: it needs scikit-learn

        estimator = TransformerLength(encoder=options.encoder or default_encoder(), seed=options.seed)
        return cast(Self, estimator.fit(requests, tokens, censored, groups).model_)

    def survival(self, requests: Sequence[PromptRequest]) -> Floats:
        """Return calibrated survival at the edges."""
        return self.calibration.apply(self.raw_survival(requests))

    def raw_survival(self, requests: Sequence[PromptRequest]) -> Floats:
        """Return survival before calibration."""
        vectors = self.encoder.embed([r.prompt for r in requests])
        return survival_of(self.grid.hazard(vectors @ self.head[:-1] + self.head[-1]))

    def to_state(self) -> State:
        """Return the learned state."""
        encoder = self.encoder.to_state()
        arrays = {
            "edges": self.edges,
            "offset": self.grid.offset,
            "basis": self.grid.basis,
            "head": self.head,
            "predicted": self.calibration.predicted,
            "observed": self.calibration.observed,
            **{f"encoder/{name}": array for name, array in encoder.arrays.items()},
        }
        return State(self.kind, {"encoder": encoder.meta}, arrays, encoder.texts)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Rebuild a fitted model."""
        arrays = state.arrays
        weights = {n.removeprefix("encoder/"): a for n, a in arrays.items() if n.startswith("encoder/")}
        grid = HazardGrid.from_arrays(arrays)
        encoder = Encoder.from_state(State("encoder", state.meta["encoder"], weights, state.texts))
        head = shaped(arrays, "head", encoder.width + 1, grid.basis.shape[1])
        return cls(encoder, head, grid, Calibration.from_arrays(arrays))
