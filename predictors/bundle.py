"""The bundle: both predictors in one folder, as `train` writes and `serve` reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from laps_sd.data import PromptRequest
from laps_sd.errors import InputError, LapsError
from laps_sd.extensions import ACCEPTANCE_PREDICTORS, PREDICTORS
from laps_sd.predictors.acceptance.base import AcceptanceModel, AcceptancePrior
from laps_sd.predictors.length.curves import CurveModel
from laps_sd.predictors.progress.refiner import Refiner
from laps_sd.predictors.registered import trained_with
from laps_sd.predictors.state import State
from laps_sd.predictors.store import read_folder, write_folder
from laps_sd.scheduler import PosteriorSettings, Prediction, SurvivalCurve

#: Name of the refinement's files; bundles of earlier versions have none.
_REFINEMENT = "refinement"


class PredictorBundle:
    """A length model and an acceptance model with the story of their training.

    Parameters
    ----------
    length : CurveModel
        Fitted length model.
    acceptance : AcceptanceModel
        Fitted acceptance model; without acceptance data in training a prior of no weight.
    manifest : mapping
        JSON values: versions, features, training-data fingerprint, metrics.
    refinement : Refiner, optional
        Corrects lengths of requests that run; None where training had too few counted answers, or none.
    """

    def __init__(
        self,
        length: CurveModel,
        acceptance: AcceptanceModel,
        manifest: Mapping[str, Any],
        refinement: Refiner | None = None,
    ) -> None:
        self.length = length
        self.acceptance = acceptance
        self.manifest = dict(manifest)
        self.refinement = refinement

    def at_arrival(
        self, requests: Sequence[PromptRequest], *, draft: str | None = None, max_correct_drafts: int | None = None
    ) -> list[tuple[SurvivalCurve, AcceptancePrior]]:
        """Return what is believed about each request before it runs; arguments as of :meth:`predict`."""
        rows = None
        if self.length.features is not None and self.length.features is self.acceptance.features:
            rows = self.length.features.rows(requests)  # most of the cost, paid once for both
            survival = self.length.survival_of_rows(rows)
        else:
            survival = self.length.survival(requests)
        curves = SurvivalCurve.batch(self.length.edges, survival)
        priors = self.acceptance.priors(requests, draft=draft, max_correct_drafts=max_correct_drafts, rows=rows)
        return list(zip(curves, priors, strict=True))

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
        found = self.at_arrival(requests, draft=draft, max_correct_drafts=max_correct_drafts)
        return [to_prediction(curve, prior) for curve, prior in found]

    def predict_one(
        self, request: PromptRequest, *, draft: str | None = None, max_correct_drafts: int | None = None
    ) -> Prediction:
        """Predict one request; see :meth:`predict`."""
        return self.predict([request], draft=draft, max_correct_drafts=max_correct_drafts)[0]

    def posterior_settings(
        self, draft: str | None = None, max_correct_drafts: int | None = None, model: str | None = None
    ) -> PosteriorSettings | None:
        """Return the constants of the acceptance posterior that were fitted with the priors; None if none were."""
        return self.acceptance.posterior_settings(draft, max_correct_drafts, model)

    def save(self, path: Path | str) -> Path:
        """Write the bundle to the folder ``path``, all of it or nothing; an older bundle there is replaced."""
        shared = self.acceptance.features is not None and self.acceptance.features is self.length.features
        acceptance = self.acceptance.to_state(with_features=not shared)
        states = {"length": self.length.to_state(), "acceptance": acceptance}
        if self.refinement is not None:
            states[_REFINEMENT] = self.refinement.to_state()
        write_folder(Path(path), states, self.manifest)
        return Path(path)

    @classmethod
    def load(cls, path: Path | str) -> PredictorBundle:
        """Read a bundle; nothing in it is executed.

        Raises
        ------
        InputError
            There is no bundle, it is damaged, a newer version wrote it, or no installed package registers the
            predictors it was trained with.
        """
        states, manifest = read_folder(Path(path))
        try:
            packages = manifest.get("packages") or {}
            length = _length(states["length"], packages.get("predictor"))
            acceptance = _acceptance(states["acceptance"], length, packages.get("acceptance"))
            refinement = Refiner.from_state(states[_REFINEMENT]) if _REFINEMENT in states else None
            return cls(length, acceptance, manifest, refinement)
        except LapsError as error:
            raise InputError(f"bundle {path} cannot be used: {error}") from error
        except Exception as error:  # a state with a true checksum and false content may break anything
            raise InputError(f"bundle {path} cannot be used ({error!r}); train it again") from error


def to_prediction(curve: SurvivalCurve, prior: AcceptancePrior) -> Prediction:
    """Return what the scheduler is told about a request."""
    return Prediction(length=curve, accept_length=float(prior.mean), accept_strength=float(prior.strength))


def _length(state: State, package: str | None) -> CurveModel:
    # Bundles of the first version call all three class curves by one name, and say which in another place.
    name = state.meta["value"] if state.kind == "classes" else state.kind
    return trained_with(PREDICTORS, name, CurveModel, package).from_state(state)  # type: ignore[type-abstract]


def _acceptance(state: State, length: CurveModel, package: str | None) -> AcceptanceModel:
    kind = trained_with(ACCEPTANCE_PREDICTORS, state.kind, AcceptanceModel, package)  # type: ignore[type-abstract]
    return kind.from_state(state, length.features)
