"""Policies by name, as the command line, the configuration of a server and a study know them."""

from __future__ import annotations

from dataclasses import replace

from laps_sd.extensions import POLICIES, did_you_mean
from laps_sd.scheduler.policies.base import Policy
from laps_sd.scheduler.service import CostModel
from laps_sd.scheduler.settings import PRESETS, Settings

#: The policy whose settings the presets are.
_WITH_PRESETS = "laps-sd"


def policy_names() -> list[str]:
    """Return every name that `make_policy` knows: those of `laps_sd.extensions.POLICIES`, then the presets."""
    return [*POLICIES.names(), *(f"{_WITH_PRESETS}:{preset}" for preset in PRESETS)]


def policy_class(name: str) -> type[Policy]:
    """Return the class behind a name, to ask what it needs before one is made.

    Raises
    ------
    ValueError
        There is no such policy or preset, or another package registered something else under its name.
    """
    base, _, preset = name.partition(":")
    if base not in POLICIES or (preset and (base != _WITH_PRESETS or preset not in PRESETS)):
        hint = did_you_mean(name, policy_names())
        raise ValueError(f"unknown policy {name!r}; {hint}known are {', '.join(policy_names())}")
    found = POLICIES.load(base)
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise ValueError(f"policy {base!r} is registered as {found!r}, which is no class derived from Policy")
    return found


def make_policy(name: str, settings: Settings | None = None, cost: CostModel | None = None, slots: int = 1) -> Policy:
    """Return a fresh policy.

    Parameters
    ----------
    name : str
        One of `policy_names`.
    settings : Settings, optional
        Constants of the policy; those that a preset is about are the preset's.
    cost : CostModel, optional
        Default: the unit model.
    slots : int
        Requests that run together.

    Raises
    ------
    ValueError
        As from `policy_class`.
    """
    kind = policy_class(name)
    _, _, preset = name.partition(":")
    if preset:
        settings = replace(settings or Settings(), **PRESETS[preset])
    return kind(settings, cost, slots)
