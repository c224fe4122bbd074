"""The bundle: both predictors in one folder, as `train` writes and `serve` reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from laps_sd.data import PromptRequest
from laps_sd.errors import InputError, LapsError
from laps_sd.predictors.acceptance.predictor import PromptAcceptance
from laps_sd.predictors.acceptance.run_mean import RunMeanAcceptance
from laps_sd.predictors.length.curves import ClassCurves, CurveModel
from laps_sd.predictors.length.hazard_curves import HazardCurves
from laps_sd.predictors.length.transformer_curves import TransformerCurves
from laps_sd.predictors.state import State
from laps_sd.predictors.store import read_folder, write_folder
from laps_sd.scheduler import PosteriorSettings, Prediction

AcceptanceModel = PromptAcceptance | RunMeanAcceptance


class PredictorBundle:
    """A length model and an acceptance model with the story of their training.

    Parameters
    ----------
    length : CurveModel
        Fitted length model.
    acceptance : PromptAcceptance or RunMeanAcceptance
        Fitted acceptance model; without acceptance data in training a prior of no weight.
    manifest : mapping
        JSON values: versions, features, training-data fingerprint, metrics.
    """

    def __init__(self, length: CurveModel, acceptance: AcceptanceModel, manifest: Mapping[str, Any]) -> None:
        self.length = length
        self.acceptance = acceptance
        self.manifest = dict(manifest)

    def predict(
        self, requests: Sequence[PromptRequest], *, draft: str | None = None, max_correct_drafts: int | None = None
    ) -> list[Prediction]:
        """Predict a batch of requests.

        Parameters
        ----------
        requests : sequence of PromptRequest
            What is known at arrival.
        draft : str, optional
            Draft algorithm and model of the server; the one trained on when None.
        max_correct_drafts : int, optional
            Most drafts a verify step can accept; the one trained on when None.

        Returns
        -------
        list of Prediction
            In the order of ``requests``.
        """
        rows = None
        if isinstance(self.length, HazardCurves) and shares_features(self.length, self.acceptance):
            rows = self.length.features.rows(requests)  # most of the cost, paid once for both
            curves = self.length.curves_of(rows)
        else:
            curves = self.length.curves(requests)
        means, strengths = self.acceptance.predict_prior(
            requests, draft=draft, max_correct_drafts=max_correct_drafts, rows=rows
        )
        return [
            Prediction(length=curve, accept_length=float(mean), accept_strength=float(strength))
            for curve, mean, strength in zip(curves, means, strengths, strict=True)
        ]

    def predict_one(
        self, request: PromptRequest, *, draft: str | None = None, max_correct_drafts: int | None = None
    ) -> Prediction:
        """Predict one request; see :meth:`predict`."""
        return self.predict([request], draft=draft, max_correct_drafts=max_correct_drafts)[0]

    def posterior_settings(
        self, draft: str | None = None, max_correct_drafts: int | None = None, model: str | None = None
    ) -> PosteriorSettings | None:
        """Return the constants of the acceptance posterior that were fitted with the priors; None if none were."""
        if not isinstance(self.acceptance, PromptAcceptance):
            return None
        return self.acceptance.posterior_settings(draft, max_correct_drafts, model)

    def save(self, path: Path | str) -> Path:
        """Write the bundle to the folder ``path``, all of it or nothing; an older bundle there is replaced."""
        shared = shares_features(self.length, self.acceptance)
        acceptance = self.acceptance.to_state(with_features=not shared)
        states = {"length": self.length.to_state(), "acceptance": acceptance}
        write_folder(Path(path), states, self.manifest)
        return Path(path)

    @classmethod
    def load(cls, path: Path | str) -> PredictorBundle:
        """Read a bundle; nothing in it is executed.

        Raises
        ------
        InputError
            There is no bundle, it is damaged, or a newer version wrote it.
        """
        states, manifest = read_folder(Path(path))
        try:
            length = _length(states["length"])
            return cls(length, _acceptance(states["acceptance"], length), manifest)
        except LapsError:
            raise
        except Exception as error:  # a state with a true checksum and false content may break anything
            raise InputError(f"bundle {path} cannot be used ({error!r}); train it again") from error


def _length(state: State) -> CurveModel:
    match state.kind:
        case HazardCurves.kind:
            return HazardCurves.from_state(state)
        case ClassCurves.kind:
            return ClassCurves.from_state(state)
        case TransformerCurves.kind:
            return TransformerCurves.from_state(state)
    raise ValueError(f"unknown length model {state.kind}")


def _acceptance(state: State, length: CurveModel) -> AcceptanceModel:
    match state.kind:
        case RunMeanAcceptance.kind:
            return RunMeanAcceptance.from_state(state)
        case PromptAcceptance.kind:
            return PromptAcceptance.from_state(state, length.features if isinstance(length, HazardCurves) else None)
    raise ValueError(f"unknown acceptance model {state.kind}")


def shares_features(length: CurveModel, acceptance: AcceptanceModel) -> bool:
    """Whether both models read the same fitted features."""
    if not (isinstance(length, HazardCurves) and isinstance(acceptance, PromptAcceptance)):
        return False
    return acceptance.features is length.features
