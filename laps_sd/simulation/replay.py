"""From request records and the ``--predictions`` option to what the simulator replays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from laps_sd.errors import InputError
from laps_sd.scheduler.prediction import Prediction
from laps_sd.scheduler.refinement import Refinement
from laps_sd.scheduler.simulator.workload import (
    ReplayRequest,
    cut,
    geometric_accept_lengths,
    histogram_accept_lengths,
    resampled_accept_lengths,
)

if TYPE_CHECKING:
    from laps_sd.data import RequestRecord
    from laps_sd.scheduler.posterior.settings import PosteriorSettings
    from laps_sd.scheduler.survival import SurvivalCurve

Base = Literal["bundle", "oof", "file", "noise", "none"]
Corruption = Literal["shuffled", "reversed"]


@dataclass(frozen=True, slots=True)
class PredictionsOption:
    """What ``--predictions`` asks for: a source, and perhaps a way to corrupt what it gives."""

    base: Base
    corrupt: Corruption | None = None
    file: Path | None = None
    sigma: float | None = None

    def __str__(self) -> str:
        source = {"file": str(self.file), "noise": f"noise:{self.sigma:g}" if self.sigma is not None else ""}
        text = source.get(self.base, self.base)
        return f"{self.corrupt}:{text}" if self.corrupt else text


def parse_predictions(text: str | None, *, bundle: bool, prompts: bool) -> PredictionsOption:
    """Read ``--predictions``.

    Parameters
    ----------
    text : str or None
        ``bundle``, ``oof``, ``noise:S``, ``none``, a file, or ``shuffled``/``reversed``, alone or before one of the
        others (``shuffled:noise:0.6``).
    bundle, prompts : bool
        Whether a bundle was given, and whether every request has its prompt: they decide what is meant when ``text``
        does not say it.
    """
    usual: Base = "bundle" if bundle else "oof" if prompts else "none"
    if text is None:
        return PredictionsOption(usual)
    corrupt: Corruption | None = None
    words: tuple[Corruption, ...] = ("shuffled", "reversed")
    for word in words:
        if text == word or text.startswith(f"{word}:"):
            corrupt, text = word, text[len(word) + 1 :] or usual
            break
    if corrupt and text == "none":
        raise InputError(f"--predictions {corrupt} needs something to corrupt: try {corrupt}:noise:0.6")
    if text in ("bundle", "oof", "none"):
        if text == "bundle" and not bundle:
            raise InputError("--predictions bundle needs --bundle")
        return PredictionsOption(text, corrupt)  # type: ignore[arg-type]
    if text.startswith("noise:"):
        return PredictionsOption("noise", corrupt, sigma=_sigma(text.removeprefix("noise:")))
    if not Path(text).exists() or Path(text).is_dir():  # a pipe will do
        raise InputError(
            f"--predictions {text}: not a file, and not one of bundle, oof, noise:S, shuffled, reversed or none"
        )
    return PredictionsOption("file", corrupt, file=Path(text))


def _sigma(text: str) -> float:
    try:
        sigma = float(text)
    except ValueError:
        sigma = -1.0
    if not 0 <= sigma <= 10:
        raise InputError(f"--predictions noise:S needs a number from 0 to 10, got {text!r}")
    return sigma


class Found(NamedTuple):
    """A prediction for each record, the constants of the posterior that were fitted with them, and refinements."""

    predictions: list[Prediction | None]
    posterior: PosteriorSettings | None = None
    refinements: list[tuple[Refinement, ...]] | None = None


def find_predictions(
    option: PredictionsOption, records: Sequence[RequestRecord], *, bundle: str | None, seed: int, refine: bool = False
) -> Found:
    """Predict each record as ``option`` says; noise is left to the simulator, which draws it anew for each seed.

    With ``refine`` lengths are refined by what the records say of their answers, where the source can.
    """
    match option.base:
        case "bundle":
            assert bundle is not None
            return _from_bundle(bundle, records, refine)
        case "oof":
            from laps_sd.data import group_folds
            from laps_sd.training.evaluation.out_of_fold import cross_predict

            believed, _ = cross_predict(records, group_folds(records, 5, seed), seed, refine=refine)
            return Found(list(believed.predictions), refinements=_refinements(believed.refined))
        case "file":
            assert option.file is not None
            return Found(_from_file(option.file, records))
        case _:
            return Found([None] * len(records))


def _refinements(refined: Sequence[Mapping[int, SurvivalCurve]] | None) -> list[tuple[Refinement, ...]] | None:
    if refined is None:
        return None
    return [tuple(Refinement(at, curve) for at, curve in sorted(own.items())) for own in refined]


def _from_bundle(bundle: str, records: Sequence[RequestRecord], refine: bool) -> Found:
    """Predict as a server with this bundle would, and update acceptance with the constants that it would use."""
    from laps_sd.predictors.acceptance.observed import run_keys
    from laps_sd.training import load_bundle, predict_finished

    if any(r.prompt is None for r in records):
        raise InputError("--predictions bundle needs the prompt of every request, and this trace lacks some")
    loaded = load_bundle(bundle)
    model, draft, most = (_only(values) for values in zip(*run_keys(records), strict=True))
    believed = predict_finished(loaded, records)
    refinements = _refinements(believed.refined) if refine else None
    return Found(list(believed.predictions), loaded.posterior_settings(draft, most, model), refinements)


def _only(values: Sequence[Any]) -> Any:
    """Return what all have in common, None where they differ."""
    return values[0] if len(set(values)) == 1 else None


def _from_file(path: Path, records: Sequence[RequestRecord]) -> list[Prediction | None]:
    from laps_sd.data.records.rows import iter_placed

    wanted = {r.request_id for r in records}
    by_id: dict[str, Prediction] = {}
    for place, row in iter_placed(path):
        try:
            name, found = row["request_id"], Prediction.from_wire(row.get("prediction", row))
            if not isinstance(name, str):
                raise ValueError(f"request_id must be text, got {name!r}")
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise InputError(
                f"{place}: expected request_id and a prediction "
                f"(edges, survival, accept_length, accept_strength): {error}"
            ) from error
        if name in by_id:
            raise InputError(f"{place}: request {name!r} has a prediction already; keep one of them")
        if name in wanted:
            by_id[name] = found
    missing = [r.request_id for r in records if r.request_id not in by_id]
    if missing:
        raise InputError(f"{path} predicts nothing for {len(missing)} requests of the trace, {missing[0]!r} among them")
    return [by_id[r.request_id] for r in records]


#: A replay holds each verify step in memory, and goes through a prompt chunk by chunk.
MOST_OUTPUT_TOKENS, MOST_PROMPT_TOKENS = 2**24, 2**31
#: The belief about a request's acceptance has a place for each number of drafts.
MOST_DRAFTS = 2**16


@dataclass(frozen=True, slots=True)
class Donor:
    """Accept lengths that a request without any can borrow, and the most drafts that a step could accept there."""

    accept_lengths: tuple[int, ...]
    max_correct_drafts: int


def donors_of(records: Sequence[RequestRecord]) -> list[Donor]:
    """Return the requests whose accept lengths are known step by step."""
    return [
        Donor(r.accept_lengths, max(r.max_correct_drafts or 0, max(r.accept_lengths) - 1))
        for r in records
        if r.accept_lengths
    ]


def replay_request(
    record: RequestRecord,
    prediction: Prediction | None,
    donors: Sequence[Donor],
    rng: np.random.Generator,
    refinements: tuple[Refinement, ...] = (),
) -> ReplayRequest:
    """Turn a record into what the simulator replays.

    Its own accept lengths where it has them; else its own histogram in a drawn order; else those of a drawn donor;
    else draws with its own mean; else one token per step, as without speculation. Nothing about acceptance is made up.
    """
    for what, count, limit in (
        ("output tokens", record.output_tokens, MOST_OUTPUT_TOKENS),
        ("prompt tokens", record.prompt_tokens, MOST_PROMPT_TOKENS),
        ("verify steps", record.verify_steps or 0, MOST_OUTPUT_TOKENS),
        ("drafts per step", max((record.max_correct_drafts or 0, *(record.draft_lengths or ()))), MOST_DRAFTS),
        ("tokens per step", max(record.accept_lengths or (0,)), MOST_DRAFTS),
    ):
        if count > limit:
            raise ValueError(f"request {record.request_id}: {count:,} {what}; a replay takes {limit:,} at most")
    accept, most = _accept_lengths(record, donors, rng)
    drafts = record.draft_lengths if record.accept_lengths and record.draft_lengths else None
    if drafts is not None:
        # The drafts of steps beyond the end are dropped with them; what was accepted had been proposed.
        drafts = tuple(max(n, a - 1) for n, a in zip(drafts, accept, strict=False))
    return ReplayRequest(
        request_id=record.request_id,
        arrival_s=record.arrival_s or 0.0,
        prompt_tokens=record.prompt_tokens,
        output_tokens=record.output_tokens,
        accept_lengths=accept,
        draft_lengths=drafts,
        max_correct_drafts=max(most, record.max_correct_drafts or 0),
        max_new_tokens=record.max_new_tokens,
        prediction=prediction,
        priority=_priority(record),
        refinements=refinements,
    )


def _accept_lengths(
    record: RequestRecord, donors: Sequence[Donor], rng: np.random.Generator
) -> tuple[tuple[int, ...], int]:
    """Accept lengths, and the most drafts that a step could accept."""
    if record.accept_lengths:
        return cut(record.accept_lengths, record.output_tokens), max(record.accept_lengths) - 1
    decoded = record.output_tokens - 1  # the prefill emits the first token
    histogram = record.correct_drafts_histogram
    if histogram and sum(histogram):
        return histogram_accept_lengths(decoded, histogram, rng), len(histogram) - 1
    if donors:
        donor = donors[int(rng.integers(len(donors)))]
        return resampled_accept_lengths(decoded, donor.accept_lengths, rng), donor.max_correct_drafts
    if record.verify_steps:
        mean = max(decoded / record.verify_steps, 1.0)
        most = max(record.max_correct_drafts or 0, ceil(mean) - 1)
        return geometric_accept_lengths(decoded, mean, most, rng), most
    return (1,) * decoded, 0


def _priority(record: RequestRecord) -> int:
    value = record.extra.get("priority", 0)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
