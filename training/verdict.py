"""Whether a trained predictor is worth serving, in sentences: from its figures on requests that it did not see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from laps_sd.data import RequestRecord
from laps_sd.predictors.fit import ended

#: Below these, a warning: few endings make every figure uncertain, many cuts hide how long answers are.
_FEW_ENDED, _MOSTLY_CUT, _FEW_PROMPTS = 100, 0.5, 0.2
_BASELINES = {
    "constant": "one length for every request",
    "prompt_length": "the length of the prompt alone",
    "category": "the category alone",
    "asked_for": "the length that the prompt asks for",
}


@dataclass(frozen=True)
class Verdict:
    """What the validation split says about a predictor.

    Attributes
    ----------
    good : bool
        Shown to order requests better than chance, and no baseline orders them better.
    sentences : tuple of str
        Why, for people.
    warnings : tuple of str
        What about the data makes the figures doubtful.
    """

    good: bool
    sentences: tuple[str, ...]
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        """For people: one line."""
        return f"{'good' if self.good else 'doubtful'}: {'; '.join(self.sentences)}"

    def to_json(self) -> dict[str, Any]:
        """Return the verdict for JSON files and MLflow."""
        return {"good": self.good, "sentences": list(self.sentences), "warnings": list(self.warnings)}


def verdict(figures: Mapping[str, Any], records: Sequence[RequestRecord]) -> Verdict:
    """Judge a predictor.

    Parameters
    ----------
    figures : mapping
        As `laps_sd.training.evaluate` returns them, on requests that the predictor did not see.
    records : sequence of RequestRecord
        What it was trained and evaluated on.
    """
    chance, chance_sentence = _against_chance(figures["length"])
    simple, simple_sentence = _against_baselines(figures["length"], figures["baselines"] or {})
    return Verdict(chance and simple, (chance_sentence, simple_sentence), tuple(_warnings(records)))


def _against_chance(length: Mapping[str, Any]) -> tuple[bool, str]:
    tau, interval = length["kendall_tau"], (length.get("ci_95") or {}).get("kendall_tau")
    if tau is None or interval is None:
        return False, "it orders nothing: its predictions are all alike, or too few requests ended by themselves"
    low, high = interval
    found = f"Kendall τ {tau:.2f}, 95 % interval {low:.2f} to {high:.2f}"
    if low <= 0:
        return False, f"it is not shown to order requests better than chance ({found})"
    return True, f"it orders requests better than chance ({found})"


def _against_baselines(length: Mapping[str, Any], baselines: Mapping[str, Any]) -> tuple[bool, str]:
    """Compare by the c-index, in which requests that were cut count too."""
    ours = length["c_index"]
    known = {name: part["length"]["c_index"] for name, part in baselines.items() if part}
    others = {name: value for name, value in known.items() if value is not None}
    if ours is None or not others:
        return False, "it cannot be compared with simple rules: there are too few requests"
    best = max(others, key=lambda name: others[name])
    found = f"c-index {ours:.2f} against {others[best]:.2f}"
    if ours <= others[best]:
        return False, f"a simple rule, {_BASELINES.get(best, best)}, orders them as well or better ({found})"
    return True, f"it orders them better than the best simple rule, {_BASELINES.get(best, best)} ({found})"


def _warnings(records: Sequence[RequestRecord]) -> list[str]:
    natural = sum(map(ended, records))
    prompts, sources = len({record.prompt for record in records}), {record.source for record in records}
    found = []
    if natural < _FEW_ENDED:
        found.append(f"only {natural} requests ended by themselves; a few hundred are needed for figures that hold")
    if natural < (1 - _MOSTLY_CUT) * len(records):
        share = 100 * (1 - natural / len(records))
        found.append(
            f"{share:.0f} % of the requests were cut, so long answers are mostly unknown; raise max_new_tokens"
        )
    if prompts < _FEW_PROMPTS * len(records):
        found.append(f"the {len(records)} requests are {prompts} prompts, repeated: other prompts may differ")
    if len(sources) == 1 and None not in sources:
        found.append(f"all requests come from {sources.pop()}: nothing is known about other traffic")
    return found
