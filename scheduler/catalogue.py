"""Policies by name, as the command line and the launch flag know them."""

from __future__ import annotations

from laps_sd.scheduler.laps import LapsSd
from laps_sd.scheduler.peers import Gittins, Hrrn, Las, Mlfq, OracleSrpt, SjfPredicted
from laps_sd.scheduler.policy import Policy
from laps_sd.scheduler.service import CostModel
from laps_sd.scheduler.settings import Settings

POLICIES: dict[str, type[Policy]] = {
    p.name: p for p in (Policy, Hrrn, SjfPredicted, Las, Mlfq, LapsSd, Gittins, OracleSrpt)
}

#: Named configurations of ``laps-sd``, written ``laps-sd:NAME``.
PRESETS: dict[str, Settings] = {
    "paper": Settings.paper(),
    "length-only": Settings(use_acceptance=False, use_posterior=False),
    "acceptance-only": Settings(use_length=False),
    "unseeded": Settings(seeded=False),
    "no-posterior": Settings(use_posterior=False),
    "remaining": Settings(index="remaining"),
    "no-trust": Settings(trust=False),
    "no-preemption": Settings(preemption=False),
}


def make_policy(name: str, settings: Settings | None = None, cost: CostModel | None = None, slots: int = 1) -> Policy:
    """Return a fresh policy.

    Parameters
    ----------
    name : str
        A key of `POLICIES`, or ``laps-sd:PRESET``.
    settings : Settings, optional
        Constants of the policy; a preset brings its own and takes none.
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
        settings = PRESETS[preset]
    return POLICIES[base](settings, cost, slots)


def policy_names() -> list[str]:
    """Return every name that `make_policy` knows."""
    return [*POLICIES, *(f"laps-sd:{preset}" for preset in PRESETS)]
