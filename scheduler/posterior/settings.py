"""Constants of the acceptance posterior."""

from dataclasses import dataclass
from typing import Annotated, Literal

from laps_sd.declared import Setting, check

PosteriorKind = Literal["shrunken", "beta", "dirichlet"]


@dataclass(frozen=True, slots=True)
class PosteriorSettings:
    """Constants of the acceptance posterior; each is declared with its meaning and range.

    The defaults are a compromise over five public runs; `laps-sd train` fits ``discount``, ``dispersion`` and
    ``drift`` on held-out requests of the traffic at hand (docs/acceptance.md).

    Raises
    ------
    ValueError
        Names the setting and its range.
    """

    kind: Annotated[
        PosteriorKind,
        Setting(
            "shrunken: running mean shrunk towards the prior, with variance between steps (chains and trees). "
            "beta: Beta over the per-token acceptance of a chain. dirichlet: Dirichlet over accept counts (trees)."
        ),
    ] = "shrunken"
    discount: Annotated[
        float,
        Setting(
            "Weight of a step relative to the next one; 1 forgets nothing as long as acceptance does not change.",
            above=0,
            high=1,
        ),
    ] = 0.98
    dispersion: Annotated[
        float,
        Setting(
            "Variance of a step's tokens relative to the truncated geometric law (shrunken). Above 1 when steps are "
            "correlated, as n-gram drafts are.",
            above=0,
            high=100,
        ),
    ] = 1.0
    temper: Annotated[
        float,
        Setting(
            "Power of the likelihood (beta, dirichlet): how many independent steps one step is worth.",
            above=0,
            high=1,
        ),
    ] = 0.5
    drift: Annotated[
        float,
        Setting(
            "Standard deviation of the rest of a request around its own accept length, as a share of the accept "
            "length minus one: acceptance drifts as the text goes on. Widens predictive intervals only.",
            low=0,
            high=2,
        ),
    ] = 0.2

    def __post_init__(self) -> None:
        check(self)
