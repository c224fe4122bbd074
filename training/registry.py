"""Versions and aliases of a registered model in MLflow: register, promote, and take a promotion back.

Servers follow an alias (``models:/NAME@ALIAS``). What it named before stands in a tag of the registered model, so that
one command brings the version before back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from laps_sd.errors import InputError
from laps_sd.training.checks import check_names
from laps_sd.training.tracking import check_store, store_uri, tracking

_BEFORE = "laps_sd.before."


@dataclass(frozen=True)
class Promotion:
    """Where an alias points to.

    Attributes
    ----------
    name, alias : str
        Of the registered model.
    version : str
        Version that the alias names now.
    before : str or None
        Version that it named before; None where it was new.
    """

    name: str
    alias: str
    version: str
    before: str | None

    @property
    def uri(self) -> str:
        """``models:/NAME@ALIAS``."""
        return f"models:/{self.name}@{self.alias}"

    def __str__(self) -> str:
        """For people: ``NAME, production: v1 → v2``."""
        before = f"v{self.before}" if self.before else "none"
        return f"{self.name}, {self.alias}: {before} → v{self.version}"


def register_version(mlflow: Any, uri: str, name: str, description: str, tags: Mapping[str, str]) -> str:
    """Make the logged model the newest version of ``name``, described and tagged, and return the version."""
    version = str(mlflow.register_model(uri, name, tags=dict(tags)).version)
    mlflow.MlflowClient().update_model_version(name, version, description)
    return version


def named_version(mlflow: Any, name: str, alias: str) -> str | None:
    """Return the version that the alias names; None where it names none."""
    try:
        return str(mlflow.MlflowClient().get_model_version_by_alias(name, alias).version)
    except mlflow.exceptions.MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise


def move_alias(mlflow: Any, name: str, alias: str, version: str) -> Promotion:
    """Let the alias name this version, and remember which one it named."""
    before = named_version(mlflow, name, alias)
    client = mlflow.MlflowClient()
    if before is not None and before != version:
        client.set_registered_model_tag(name, _BEFORE + alias, before)
    client.set_registered_model_alias(name, alias, version)
    return Promotion(name, alias, version, before)


def promote(name: str, alias: str, version: str | None = None, tracking_uri: str | None = None) -> Promotion:
    """Let an alias name a version.

    Parameters
    ----------
    name, alias : str
        Of the registered model.
    version : str, optional
        Version; by default the newest.
    tracking_uri : str, optional
        MLflow store; default ``MLFLOW_TRACKING_URI``, else ``mlflow.db`` in the working directory.

    Raises
    ------
    InputError
        There is no such model or version.
    WorkError
        The MLflow store failed.
    """
    with _registry(name, alias, tracking_uri) as mlflow:
        versions = _versions(mlflow, name)
        if version is None:
            version = versions[-1]
        elif version not in versions:
            raise InputError(f"there is no version {version} of {name}; there are {', '.join(versions)}")
        return move_alias(mlflow, name, alias, version)


def roll_back(name: str, alias: str, tracking_uri: str | None = None) -> Promotion:
    """Let an alias name the version again that it named before the last promotion; twice in a row undoes itself.

    Raises
    ------
    InputError
        There is no such model, or it was never promoted to another version.
    WorkError
        The MLflow store failed.
    """
    with _registry(name, alias, tracking_uri) as mlflow:
        versions = _versions(mlflow, name)
        before = mlflow.MlflowClient().get_registered_model(name).tags.get(_BEFORE + alias)
        if before is None:
            raise InputError(f"{alias} of {name} never named another version")
        if before not in versions:
            raise InputError(f"version {before} of {name}, which {alias} named before, was deleted")
        return move_alias(mlflow, name, alias, before)


@contextmanager
def _registry(name: str, alias: str, tracking_uri: str | None) -> Iterator[Any]:
    """Open the store that these names must be in; yields MLflow."""
    check_names("laps-sd", name, alias)
    check_store(store_uri(tracking_uri))
    with tracking(tracking_uri) as mlflow:
        yield mlflow


def _versions(mlflow: Any, name: str) -> list[str]:
    """Return the versions of a model, oldest first."""
    found = mlflow.MlflowClient().search_model_versions(f"name = '{_quoted(name)}'")
    if not found:
        raise InputError(f"there is no registered model {name}; `laps-sd train --register {name}` makes one")
    return [str(version) for version in sorted(int(each.version) for each in found)]


def _quoted(name: str) -> str:
    return name.replace("'", "''")
