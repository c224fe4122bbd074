"""Out-of-fold predictions: every request predicted by models that never saw it or its group."""

from __future__ import annotations

from collections.abc import Sequence

from laps_sd.data import PromptRequest, RequestRecord, group_folds
from laps_sd.errors import InputError
from laps_sd.predictors import fit_bundle
from laps_sd.scheduler import Prediction


def oof_predictions(
    records: Sequence[RequestRecord],
    folds: int = 5,
    seed: int = 0,
    *,
    features: str = "lexical",
    predictor: str = "hazard",
) -> list[Prediction]:
    """Predict each record from models fitted on the other folds; folds never split a group.

    Returns
    -------
    list of Prediction
        In the order of ``records``.

    Raises
    ------
    InputError
        A record has no prompt text, or a fold leaves too little to train on.
    """
    if any(r.prompt is None for r in records):
        raise InputError("out-of-fold predictions need the prompt text of every record")
    predictions: list[Prediction | None] = [None] * len(records)
    for test in group_folds(records, folds, seed):
        held_out = set(test.tolist())
        bundle = fit_bundle(
            [r for i, r in enumerate(records) if i not in held_out], features=features, predictor=predictor, seed=seed
        )
        rows = [records[i] for i in test]
        draft, drafts = _common(rows)
        found = bundle.predict([PromptRequest.from_record(r) for r in rows], draft=draft, max_correct_drafts=drafts)
        for i, prediction in zip(test.tolist(), found, strict=True):
            predictions[i] = prediction
    return [p for p in predictions if p is not None]


def _common(rows: Sequence[RequestRecord]) -> tuple[str | None, int | None]:
    """The draft and draft length of the fold, when all rows agree; a server has one of each."""
    drafts = {r.draft for r in rows}
    most = {r.max_correct_drafts for r in rows}
    return (drafts.pop() if len(drafts) == 1 else None), (most.pop() if len(most) == 1 else None)
