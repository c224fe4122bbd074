"""What the flags said: read once by the launcher, carried to SGLang's other processes by the environment."""

import json
import os
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from laps_sd.errors import InputError
from laps_sd.scheduler import CostModel, policy_class
from laps_sd.serving.config import ServingConfig, load_config
from laps_sd.serving.flags import ACTIVE_ENV, Default

if TYPE_CHECKING:
    from laps_sd.predictors import PredictorBundle


@dataclass(frozen=True, slots=True)
class Launch:
    """The launch options of one server.

    Attributes
    ----------
    bundle : str or None
        As the operator wrote it: a folder or an MLflow URI; None: every request ranks as unpredicted.
    config : ServingConfig
    cost : CostModel or None
        What the configuration's cost model says, read once so that every process of this node has the same.
    refinement : str or None
        Folder with what the bundle learned of refining lengths in flight; None: nothing, or it is switched off.
    version : str or None
        Version of the registered model that is served; None where the bundle is none.
    run : str or None
        MLflow run that trained the bundle; None where it was trained without one, or there is no bundle.
    """

    bundle: str | None
    config: ServingConfig
    cost: CostModel | None = None
    refinement: str | None = None
    version: str | None = None
    run: str | None = None

    def to_environment(self) -> None:
        """Hand the options to the processes that are started from now on."""
        content = {
            "bundle": self.bundle,
            "config": self.config.model_dump(mode="json"),
            "cost": None if self.cost is None else self.cost.to_dict(),
            "refinement": self.refinement,
            "version": self.version,
            "run": self.run,
        }
        os.environ[ACTIVE_ENV] = json.dumps(content)

    @classmethod
    def from_environment(cls) -> "Launch | None":
        """Read what the launcher handed over; None when laps-sd was not asked for."""
        content = os.environ.get(ACTIVE_ENV)
        if content is None:
            return None
        values = json.loads(content)
        return cls(
            bundle=values["bundle"],
            config=ServingConfig.model_validate(values["config"]),
            cost=None if values.get("cost") is None else CostModel.from_dict(values["cost"]),
            refinement=values.get("refinement"),
            version=values.get("version"),
            run=values.get("run"),
        )


def read_launch(args: Namespace) -> Launch:
    """Read the configuration and the bundle's name as the flags say.

    Raises
    ------
    InputError
        The configuration is wrong, or no bundle is named although the policy uses predictions and the configuration
        does not allow to go without.
    """
    config = load_config(args.laps_sd_config)
    if isinstance(args.retraction_policy, str) and not isinstance(args.retraction_policy, Default):  # it was asked for
        kept = config.preemption.model_copy(update={"retraction": "sglang"})
        config = config.model_copy(update={"preemption": kept})
    name: str | None = args.laps_sd_bundle
    if name is None and not config.unpredicted and policy_class(config.policy_name).uses_predictions:
        raise InputError(
            "--schedule-policy laps-sd needs --laps-sd-bundle (LAPS_SD_BUNDLE for sglang.Engine); give a bundle, or "
            "start without predictions by unpredicted: true in --laps-sd-config"
        )
    return Launch(name, config, config.cost())


def load_served(launch: Launch) -> "tuple[PredictorBundle | None, Launch]":
    """Load the bundle of a launch, and note in the launch which version it is and which run trained it.

    An alias is looked up once, so that the version that is named is the one that is loaded.

    Raises
    ------
    LapsError
        See `load_bundle`.
    """
    if launch.bundle is None:
        return None, launch
    name = _pinned(launch.bundle)
    bundle = load_bundle(name)
    registered, version = name.startswith("models:/"), name.rstrip("/").rpartition("/")[2]
    run = bundle.manifest.get("mlflow_run_id")
    return bundle, replace(
        launch,
        version=version if registered and version.isdigit() else None,
        run=run if isinstance(run, str) else None,
    )


def load_bundle(name: str) -> "PredictorBundle":
    """Load the bundle that a flag names, after a process of its own has predicted with it.

    Of one in MLflow no copy stays behind, however often the server starts.

    Raises
    ------
    InputError
        It is missing, damaged, cannot be resolved or cannot predict, or MLflow is needed and not installed.
    """
    from laps_sd.predictors.probe import load_probed  # not above: the scheduler processes read the options only

    if not name.startswith(("models:/", "runs:/")):
        return load_probed(Path(name).expanduser().resolve())
    with _mlflow_for(name):
        from laps_sd.training import load_bundle as load
    return load(name, read=load_probed)


def _pinned(name: str) -> str:
    if not name.startswith("models:/"):
        return name
    with _mlflow_for(name):
        from laps_sd.training import pinned
    return pinned(name)


@contextmanager
def _mlflow_for(name: str) -> Iterator[None]:
    """Say what to install where MLflow cannot be imported."""
    try:
        yield
    except ImportError as error:
        raise InputError(
            f"--laps-sd-bundle {name} needs MLflow, which is not installed here; pip install 'laps-sd[registry]' "
            "or give the bundle's folder"
        ) from error
