"""Finished requests predicted as if they arrived now: the one way in which `evaluate`, `train` and `simulate` do it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

from laps_sd.data import PromptRequest, RequestRecord
from laps_sd.errors import InputError
from laps_sd.predictors import PredictorBundle
from laps_sd.predictors.acceptance.base import AcceptancePrior
from laps_sd.predictors.acceptance.observed import run_keys
from laps_sd.predictors.bundle import to_prediction
from laps_sd.predictors.progress.refiner import Refiner
from laps_sd.predictors.progress.rows import counted, seen_at
from laps_sd.scheduler import Prediction, SurvivalCurve

Belief = TypeVar("Belief", covariant=True)


class _Predict(Protocol[Belief]):
    def __call__(
        self, requests: Sequence[PromptRequest], *, draft: str | None = None, max_correct_drafts: int | None = None
    ) -> Sequence[Belief]: ...


class Finished(NamedTuple):
    """What was believed about finished requests before they ran, in their order.

    Attributes
    ----------
    predictions : list of Prediction
    priors : list of AcceptancePrior or None
        None without acceptance data in training.
    refined : list of dict or None
        By checkpoint, what is believed of the length once the answer has got there; empty for a request whose answer
        was not counted, or with another tokenizer than those of training. None where no refinement was learned.
    """

    predictions: list[Prediction]
    priors: list[AcceptancePrior] | None
    refined: list[dict[int, SurvivalCurve]] | None = None


def predict_finished(bundle: PredictorBundle, records: Sequence[RequestRecord]) -> Finished:
    """Predict finished requests from what a server knew when they arrived.

    Raises
    ------
    InputError
        A record has no prompt text.
    """
    if any(r.prompt is None for r in records):
        raise InputError("predictions need the prompt text of every request, and some have none")
    found = by_run(records, bundle.at_arrival)
    predictions = [to_prediction(curve, prior) for curve, prior in found]
    refiner = bundle.refinement
    refined = None if refiner is None else [_refined(refiner, r, c) for r, (c, _) in zip(records, found, strict=True)]
    return Finished(predictions, [prior for _, prior in found] if bundle.acceptance.learned else None, refined)


def _refined(refiner: Refiner, record: RequestRecord, curve: SurvivalCurve) -> dict[int, SurvivalCurve]:
    if not counted(record) or record.progress_table not in refiner.tables:
        return {}
    curves = {c: refiner.refine(curve, c, counts, accept_length) for c, counts, accept_length in seen_at(record)}
    return {checkpoint: found for checkpoint, found in curves.items() if found is not None}


def by_run(records: Sequence[RequestRecord], predict: _Predict[Belief]) -> list[Belief]:
    """Predict run by run: a server knows its draft and its draft length.

    A record's own draft length is not taken at its word: it may have been read off its outcome
    (:func:`laps_sd.predictors.acceptance.observed.run_keys`).

    Parameters
    ----------
    records : sequence of RequestRecord
    predict : callable
        From requests, ``draft`` and ``max_correct_drafts`` to one value per request.

    Returns
    -------
    list
        In the order of ``records``.
    """
    found: dict[int, Belief] = {}
    runs: dict[tuple[str | None, int | None], list[int]] = {}
    for i, key in enumerate(run_keys(records)):
        runs.setdefault((key.draft, key.drafts), []).append(i)
    for (draft, drafts), rows in runs.items():
        requests = [PromptRequest.from_record(records[i]) for i in rows]
        found.update(zip(rows, predict(requests, draft=draft, max_correct_drafts=drafts), strict=True))
    return [found[i] for i in range(len(records))]
