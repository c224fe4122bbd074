"""Policies by name, as the command line and the launch flag know them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from laps_sd.scheduler.policies.base import Policy
from laps_sd.scheduler.policies.laps_sd import LapsSd
from laps_sd.scheduler.policies.peers import Gittins, Hrrn, Las, Mlfq, OracleSrpt, SjfPredicted
from laps_sd.scheduler.service import CostModel
from laps_sd.scheduler.settings import PAPER, Settings

POLICIES: dict[str, type[Policy]] = {
    p.name: p for p in (Policy, Hrrn, SjfPredicted, Las, Mlfq, LapsSd, Gittins, OracleSrpt)
}

#: Named configurations of ``laps-sd``, written ``laps-sd:NAME``, and what each changes of the settings at hand.
PRESETS: dict[str, dict[str, Any]] = {
    "paper": PAPER,
    "length-only": {"use_acceptance": False, "use_posterior": False},
    "acceptance-only": {"use_length": False},
    "unseeded": {"seeded": False},
    "no-posterior": {"use_posterior": False},
    "remaining": {"index": "remaining"},
    "no-trust": {"trust": False},
    "no-preemption": {"preemption": False},
}


def make_policy(name: str, settings: Settings | None = None, cost: CostModel | None = None, slots: int = 1) -> Policy:
    """Return a fresh policy.

    Parameters
    ----------
    name : str
        A key of `POLICIES`, or ``laps-sd:PRESET``.
    settings : Settings, optional
        Constants of the policy; those that a preset is about are the preset's.
    cost : CostModel, optional
        Default: the unit model.
    slots : int
        Requests that run together.

    Raises
    ------
    ValueError
        When there is no such policy or preset.
    """
    base, _, preset = name.partition(":")
    if base not in POLICIES or (preset and base != "laps-sd"):
        raise ValueError(f"unknown policy {name!r}; known are {', '.join(policy_names())}")
    if preset:
        if preset not in PRESETS:
            raise ValueError(f"unknown policy {name!r}; known are {', '.join(policy_names())}")
        settings = replace(settings or Settings(), **PRESETS[preset])
    return POLICIES[base](settings, cost, slots)


def policy_names() -> list[str]:
    """Return every name that `make_policy` knows."""
    return [*POLICIES, *(f"laps-sd:{preset}" for preset in PRESETS)]
