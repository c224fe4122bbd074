"""The `length` part of an evaluation: curves on one grid, the baselines, and the noise ceiling."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from laps_sd.data import PromptRequest, RequestRecord, group_folds
from laps_sd.errors import InputError
from laps_sd.predictors.arrays import Bools, Floats, Ints
from laps_sd.predictors.length.baselines import AskedForLength, CategoryLength, ConstantLength, PromptLength
from laps_sd.scheduler import SurvivalCurve
from laps_sd.training.evaluation.metrics import kendall_tau, length_metrics


def lengths_of(records: Sequence[RequestRecord]) -> tuple[Floats, Bools]:
    """Return output lengths (tokens, at least 1) and censoring marks."""
    tokens = np.array([max(1, r.output_tokens) for r in records], dtype=np.float64)
    return tokens, np.array([r.censored for r in records], dtype=np.bool_)


def common_grid(curves: Sequence[SurvivalCurve]) -> tuple[Ints, Floats]:
    """Put curves on the union of their edges, where nothing of them is lost."""
    grids = {tuple(c.edges.tolist()) for c in curves}
    if len(grids) == 1:
        return curves[0].edges, np.array([c.survival for c in curves])
    edges = np.array(sorted(set().union(*grids)), dtype=np.int64)
    survival = np.empty((len(curves), len(edges)))
    for row, curve in zip(survival, curves, strict=True):
        own = curve.edges
        row[:] = np.interp(edges, own, curve.survival)
        beyond = edges > own[-1]
        row[beyond] = [curve.survive(int(t)) for t in edges[beyond]]
    return edges, survival


def baselines(records: Sequence[RequestRecord], seed: int) -> dict[str, Any]:
    """Evaluate the baselines, fitted out-of-fold on these very records: more than a fair start for them.

    Returns
    -------
    dict
        For ``constant``, ``prompt_length``, ``category`` and ``asked_for`` the figures of ``length``, or None where
        there are too few records or no categories.
    """
    requests = [PromptRequest.from_record(r) for r in records]
    categories = [r.category for r in records]
    tokens, censored = lengths_of(records)
    try:
        folds = group_folds(records, 5, seed)
        rest = [np.setdiff1d(np.arange(len(records)), test) for test in folds]
        found: dict[str, Any] = {}
        for name, estimator in (
            ("constant", ConstantLength()),
            ("prompt_length", PromptLength()),
            ("asked_for", AskedForLength()),
        ):
            curves: dict[int, SurvivalCurve] = {}
            for train, test in zip(rest, folds, strict=True):
                estimator.fit([requests[i] for i in train], tokens[train], censored[train])
                curves.update(zip(test.tolist(), estimator.predict_curves([requests[i] for i in test]), strict=True))
            found[name] = _length_of(curves, tokens, censored)
        curves = {}
        for train, test in zip(rest, folds, strict=True):
            model = CategoryLength().fit([categories[i] for i in train], tokens[train], censored[train])
            rows = model.predict_survival([categories[i] for i in test])
            curves.update((i, SurvivalCurve(model.edges_, row)) for i, row in zip(test.tolist(), rows, strict=True))
        found["category"] = _length_of(curves, tokens, censored) if any(categories) else None
    except InputError:  # too few records for folds: the predictor's own figures still stand
        return dict.fromkeys(("constant", "prompt_length", "category", "asked_for"))
    return found


def _length_of(curves: dict[int, SurvivalCurve], tokens: Floats, censored: Bools) -> dict[str, Any]:
    edges, survival = common_grid([curves[i] for i in range(len(tokens))])
    return {"length": length_metrics(tokens, censored, survival, edges)}


def noise_ceiling(records: Sequence[RequestRecord]) -> dict[str, Any] | None:
    """Return how well one sampled answer orders another's length: what no predictor from the prompt can much exceed.

    Returns
    -------
    dict or None
        ``kendall_tau`` between two answers of one model to the same prompts, and ``n_prompts``; None with fewer
        than 10 prompts that were answered twice.
    """
    answers: defaultdict[tuple[str | None, str | None, float | None], list[int]] = defaultdict(list)
    for record in records:
        if not record.censored:
            answers[record.prompt, record.model, record.temperature].append(record.output_tokens)
    pairs = [(lengths[0], lengths[1]) for lengths in answers.values() if len(lengths) > 1]
    if len(pairs) < 10:
        return None
    first, second = zip(*pairs, strict=True)
    tau = kendall_tau(first, second)
    return None if tau is None else {"kendall_tau": tau, "n_prompts": len(pairs)}
