"""The ``--refine`` option: what corrects predicted lengths while the replayed requests run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from laps_sd.errors import InputError
from laps_sd.scheduler.simulator.predictions import MEASURED_QUALITY

_EXPECTED = "recorded, none, noise, or noise:TOKENS=S,… such as noise:64=0.5,256=0.3"
_LARGEST_SIGMA, _MOST_TOKENS = 10.0, 2**24


@dataclass(frozen=True, slots=True)
class RefineOption:
    """What ``--refine`` asks for.

    Attributes
    ----------
    recorded : bool
        Refine by what the records say of their answers.
    quality : mapping of int to float, optional
        Refine with this quality instead: by tokens read, the standard deviation of the log length.
    """

    recorded: bool = False
    quality: Mapping[int, float] | None = None

    def __str__(self) -> str:
        if self.quality is not None:
            return "noise:" + ",".join(f"{at}={sigma:g}" for at, sigma in sorted(self.quality.items()))
        return "recorded" if self.recorded else "none"


def parse_refine(text: str | None, *, usual: bool) -> RefineOption:
    """Read ``--refine``.

    Parameters
    ----------
    text : str or None
        ``recorded``, ``none``, ``noise`` (the quality that was measured) or ``noise:TOKENS=S,…``.
    usual : bool
        Whether the records are read when ``text`` does not say it.

    Raises
    ------
    InputError
        It is none of these.
    """
    if text in (None, "recorded", "none"):
        return RefineOption(recorded=usual if text is None else text == "recorded")
    if text == "noise":
        return RefineOption(quality=MEASURED_QUALITY)
    kind, _, rest = str(text).partition(":")
    if kind != "noise":
        raise InputError(f"--refine {text}: expected {_EXPECTED}")
    quality: dict[int, float] = {}
    for part in rest.split(","):
        at, _, sigma = part.partition("=")
        try:
            tokens, noise = int(at), float(sigma)
        except ValueError:
            raise InputError(f"--refine {text}: expected {_EXPECTED}") from None
        if not 1 <= tokens <= _MOST_TOKENS or not 0 <= noise <= _LARGEST_SIGMA or tokens in quality:
            raise InputError(f"--refine {text}: expected tokens from 1, each once, and S from 0 to {_LARGEST_SIGMA:g}")
        quality[tokens] = noise
    return RefineOption(quality=quality)
