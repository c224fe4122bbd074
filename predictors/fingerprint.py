"""A summary of the training data, so that a bundle can tell when it meets requests unlike those it learned from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from laps_sd.data import PromptRequest, RequestRecord
from laps_sd.predictors.arrays import Floats
from laps_sd.predictors.features.lexical import LEXICAL_NAMES, lexical_features, words_of

#: Surface features whose distribution is remembered: sizes, code, digits, scripts, kinds of request.
_WATCHED = (
    "log_bytes",
    "log_words",
    "log_lines",
    "ends_question",
    "asked_tokens",
    "share_digits",
    "share_upper",
    "share_code_marks",
    "share_cjk",
    "share_greek_cyrillic",
    "words_write",
    "words_echo",
    "words_code",
    "words_math",
    "words_no_extra",
    "words_follow_up",
)
_QUANTILES = np.linspace(0.05, 0.95, 19)
#: Population stability index above which a shift is called large (the customary 0.25 of credit scoring).
LARGE_SHIFT = 0.25
_PRIOR_ROWS = 20.0


def fingerprint(records: Sequence[RequestRecord]) -> dict[str, Any]:
    """Return quantiles of prompt features and of output lengths (tokens) as JSON values."""
    requests = [PromptRequest.from_record(r) for r in records]
    features = _watched(requests)
    lengths = np.log1p([r.output_tokens for r in records if r.own_length and not r.censored])
    bins = {name: _bins(features[:, i]) for i, name in enumerate(_WATCHED)}
    return {
        "n": len(records),
        "features": bins,
        "log_output_tokens": _bins(lengths) if len(lengths) else None,
        "models": sorted({r.model for r in records if r.model}),
        "censored_share": float(np.mean([r.censored for r in records])),
    }


def shift(known: dict[str, Any], records: Sequence[RequestRecord]) -> dict[str, Any]:
    """Compare records with a fingerprint.

    Returns
    -------
    dict
        ``score``: the third largest population stability index over the watched features, so that two odd features
        alone raise no alarm; ``shifted``: whether it is above ``LARGE_SHIFT``; ``features``: the index of each
        feature, largest first; ``output_tokens``: that of the lengths (which a server learns only afterwards);
        ``new_models``: models that training never saw.
    """
    features = _watched([PromptRequest.from_record(r) for r in records])
    indices = {name: _stability(known["features"][name], features[:, i]) for i, name in enumerate(_WATCHED)}
    ordered = dict(sorted(indices.items(), key=lambda item: -item[1]))
    score = sorted(indices.values())[-3]
    lengths = np.log1p([r.output_tokens for r in records if r.own_length and not r.censored])
    ended = known["log_output_tokens"] is not None and len(lengths) > 0
    return {
        "score": score,
        "shifted": score > LARGE_SHIFT,
        "features": ordered,
        "output_tokens": _stability(known["log_output_tokens"], lengths) if ended else None,
        "new_models": sorted({r.model for r in records if r.model} - set(known["models"])),
    }


def _watched(requests: Sequence[PromptRequest]) -> Floats:
    columns = [LEXICAL_NAMES.index(name) for name in _WATCHED]
    return np.array([lexical_features(r.prompt, words_of(r.prompt))[columns] for r in requests])


def _bins(values: Floats) -> dict[str, list[float]]:
    """Distinct quantiles as bin limits, with the share of rows in each bin; a limit belongs to the bin below it."""
    limits = np.unique(np.round(np.quantile(values, _QUANTILES), 6))
    return {"limits": limits.tolist(), "shares": _shares(limits, values).tolist()}


def _shares(limits: Floats, values: Floats) -> Floats:
    counts = np.bincount(np.searchsorted(limits, values, side="left"), minlength=len(limits) + 1)
    shares: Floats = counts / max(1, len(values))
    return shares


def _stability(known: dict[str, list[float]], values: Floats) -> float:
    """Population stability index, sum over bins of (q - p) log(q / p).

    A few rows that look like the training data are added to the new ones, and what is expected by chance (about
    bins / rows) is taken off, so that a handful of requests raises no alarm.
    """
    shares = np.asarray(known["shares"])
    bins, n = len(shares), len(values)
    p = (shares + 1e-3) / (1.0 + 1e-3 * bins)
    weight = n / (n + _PRIOR_ROWS)
    q = weight * _shares(np.asarray(known["limits"]), values) + (1.0 - weight) * p
    return max(0.0, float(((q - p) * np.log(q / p)).sum()) - weight**2 * bins / max(1, n))
