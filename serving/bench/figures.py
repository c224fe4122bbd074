"""Figures of a live comparison: per policy, and whether the answers were the same."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from math import nan
from pathlib import Path

from laps_sd.files import replacing
from laps_sd.scheduler import summarise
from laps_sd.scheduler.outcomes import spread
from laps_sd.serving.bench.intervals import paired_ratios
from laps_sd.serving.bench.load import Json, LoadResult
from laps_sd.serving.bench.names import turn_name
from laps_sd.serving.bench.round_log import read_rounds, rounds_path
from laps_sd.serving.bench.turn import Turn


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
    summary.update(rounds_of(turns))
    summary["accept_length_mean"] = _mean_accept_length(turns)
    return summary


def rounds_of(turns: Sequence[Turn]) -> Json:
    """Latencies in rounds of the scheduler: to the slot, to the first token, to the end; None where nobody counted."""
    counted = [r.rounds for turn in turns for r in turn.results if r.finish_s is not None and r.rounds is not None]
    return {
        "latency_rounds": spread([c["end"] - c["arrival"] for c in counted]),
        "ttft_rounds": spread([c["first_token"] - c["arrival"] for c in counted]),
        "queue_rounds": spread([c["spans"][0][0] - c["arrival"] for c in counted if c["spans"]]),
    }


def _latency(result: LoadResult, measure: str) -> float:
    latency = result.latency_s if measure == "latency_s" else result.latency_rounds
    return nan if latency is None else float(latency)


def ratios_of(turns: Sequence[Turn], policies: Sequence[str]) -> Json:
    """Return every policy over every other that had the same rounds: ``{policy: {other: {measure: {statistic: …}}}}``.

    Each figure is ``{"ratio", "low", "high"}``, the interval at 95 %; a measure that nobody took is None.
    """
    found: Json = {}
    for ours in policies:
        found[ours] = {}
        for theirs in policies:
            if ours != theirs:
                found[ours][theirs] = {
                    measure: _ratios(turns, ours, theirs, measure) for measure in ("latency_rounds", "latency_s")
                }
    return found


def _ratios(turns: Sequence[Turn], ours: str, theirs: str, measure: str) -> Json | None:
    rounds: dict[str, dict[int, dict[str, float]]] = {ours: {}, theirs: {}}
    order: dict[int, list[str]] = {}
    for turn in turns:
        if turn.policy in rounds:
            rounds[turn.policy][turn.round] = {r.request_id: _latency(r, measure) for r in turn.results}
            order[turn.round] = [r.request_id for r in sorted(turn.results, key=lambda r: (r.arrival_s, r.request_id))]
    shared = sorted(rounds[ours].keys() & rounds[theirs].keys())
    names = {number: [n for n in order[number] if n in rounds[ours][number] and n in rounds[theirs][number]]
             for number in shared}  # fmt: skip
    a, b = ([[rounds[policy][k][n] for n in names[k]] for k in shared] for policy in (ours, theirs))
    ratios = paired_ratios(a, b)
    return None if ratios is None else {name: asdict(ratio) for name, ratio in ratios.items()}


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
                    "spec_accept_length": meta.get("spec_accept_length"), "laps_sd": r.ours or None,
                }  # fmt: skip
                file.write(json.dumps(line).encode() + b"\n")


def read_requests(out: Path) -> list[Json]:
    """Read what `write_requests` wrote into the folder of a comparison."""
    return [json.loads(line) for line in (out / "requests.jsonl").read_text(encoding="utf-8").splitlines()]


def queues_of(out: Path, policies: Iterable[str]) -> dict[str, list[tuple[int, int]]]:
    """Return (round, requests waiting) of each policy's first turn, where the server logged its rounds."""
    paths = {policy: rounds_path(out, turn_name(policy, 0)) for policy in policies}
    return {
        policy: [(line["round"], line["waiting"]) for line in read_rounds(path).rounds]
        for policy, path in paths.items()
        if path.exists()
    }
