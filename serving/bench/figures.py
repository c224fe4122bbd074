"""Figures of a live comparison: per policy, and whether the answers were the same."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from laps_sd.files import replacing
from laps_sd.scheduler import summarise
from laps_sd.serving.bench.load import Json, LoadResult
from laps_sd.serving.flags import META_KEY


@dataclass(frozen=True, slots=True)
class Turn:
    """One policy's run in one round: what came back, and microseconds per ranking (p50, p99)."""

    policy: str
    round: int
    results: list[LoadResult]
    rank_us: tuple[float, float] | None


def summary_of(turns: Sequence[Turn]) -> Json:
    """Figures of one policy over all its rounds, one after the other on one clock."""
    outcomes, shift, means = [], 0.0, []
    for turn in turns:
        moved = [result.outcome(shift_s=shift) for result in turn.results]
        finishes = [o.finish_s for o in moved if o.finish_s is not None]
        shift = max(finishes, default=shift)
        spread = summarise(moved)["latency_s"]
        means.append(None if spread is None else spread["mean"])
        outcomes += moved
    summary: Json = dict(summarise(outcomes))
    timed = [turn.rank_us for turn in turns if turn.rank_us is not None]
    if timed:
        summary["rank_us_p50"], summary["rank_us_p99"] = (sum(x) / len(timed) for x in zip(*timed, strict=True))
    summary["latency_s_mean_by_round"] = means
    summary["accept_length_mean"] = _mean_accept_length(turns)
    return summary


def compare_tokens(turns: Sequence[Turn]) -> Json:
    """Whether every request got the same tokens in every run that answered it."""
    answers: dict[str, list[tuple[str, int, list[int]]]] = {}
    for turn in turns:
        for result in turn.results:
            if result.finish_s is not None:
                answers.setdefault(result.request_id, []).append((turn.policy, turn.round, result.output_ids))
    comparable = {name: runs for name, runs in answers.items() if len(runs) > 1}
    different = sorted(name for name, runs in comparable.items() if any(run[2] != runs[0][2] for run in runs))
    return {"identical_tokens": not different if comparable else None, "different_requests": different}


def _mean_accept_length(turns: Sequence[Turn]) -> float | None:
    tokens = steps = 0
    for turn in turns:
        for result in turn.results:
            histogram = result.meta_info.get("spec_correct_drafts_histogram") or []
            steps += sum(histogram)
            tokens += sum((k + 1) * count for k, count in enumerate(histogram))
    return tokens / steps if steps else None


def write_requests(path: Path, turns: Sequence[Turn]) -> None:
    """Write one JSON line per request: when it was sent and answered, its token ids, what the server said of it."""
    with replacing(path) as file:
        for turn in turns:
            for r in turn.results:
                meta = r.meta_info
                line = {
                    "policy": turn.policy, "round": turn.round, "request_id": r.request_id, "arrival_s": r.arrival_s,
                    "first_token_s": r.first_token_s, "finish_s": r.finish_s, "error": r.error,
                    "output_ids": r.output_ids, "finish_reason": meta.get("finish_reason"),
                    "num_retractions": meta.get("num_retractions"), "cached_tokens": meta.get("cached_tokens"),
                    "spec_accept_length": meta.get("spec_accept_length"), "laps_sd": meta.get(META_KEY),
                }  # fmt: skip
                file.write(json.dumps(line).encode() + b"\n")
