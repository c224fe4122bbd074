"""What the flags said: read once by the launcher, carried to SGLang's other processes by the environment."""

import json
import os
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

from laps_sd.errors import InputError
from laps_sd.serving.config import ServingConfig, load_config
from laps_sd.serving.names import ACTIVE_ENV


@dataclass(frozen=True, slots=True)
class Launch:
    """The launch options of one server.

    Attributes
    ----------
    bundle : Path or None
        Folder of the bundle, resolved; None: every request ranks as unpredicted.
    bundle_name : str or None
        What the operator wrote: a folder or an MLflow URI.
    config : ServingConfig
    """

    bundle: Path | None
    bundle_name: str | None
    config: ServingConfig

    def to_environment(self) -> None:
        """Hand the options to the processes that are started from now on."""
        content = {
            "bundle": None if self.bundle is None else str(self.bundle),
            "bundle_name": self.bundle_name,
            "config": self.config.model_dump(mode="json"),
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
            bundle=None if values["bundle"] is None else Path(values["bundle"]),
            bundle_name=values["bundle_name"],
            config=ServingConfig.model_validate(values["config"]),
        )


def read_launch(args: Namespace) -> Launch:
    """Read configuration and bundle as the flags say.

    Raises
    ------
    InputError
        The configuration is wrong, the bundle is missing, damaged or cannot be resolved, or there is none.
    """
    config = load_config(args.laps_sd_config)
    name: str | None = args.laps_sd_bundle
    if name is None:
        if not config.unpredicted:
            raise InputError(
                "--schedule-policy laps-sd needs --laps-sd-bundle; give a bundle, or start without predictions by "
                "unpredicted: true in --laps-sd-config"
            )
        return Launch(None, None, config)
    return Launch(resolve_bundle(name), name, config)


def resolve_bundle(name: str) -> Path:
    """Folder of a bundle: the folder itself, or what MLflow holds under ``models:/…`` or ``runs:/…``."""
    if not name.startswith(("models:/", "runs:/")):
        return Path(name).expanduser().resolve()
    try:
        from laps_sd.training import resolve_bundle as resolve
    except ImportError as error:
        raise InputError(
            f"--laps-sd-bundle {name} needs MLflow, which is not installed here; pip install 'laps-sd[registry]' "
            "or give the bundle's folder"
        ) from error
    return Path(resolve(name)).resolve()
