"""Figures of a live comparison, from what clients saw."""

import json
from pathlib import Path

import pytest

from laps_sd.errors import InputError, WorkError
from laps_sd.serving.bench.calibration import capacity_of
from laps_sd.serving.bench.figures import compare_tokens, ratios_of, summary_of, write_requests
from laps_sd.serving.bench.load import LoadResult
from laps_sd.serving.bench.rank_time import counts_in, quantiles_us
from laps_sd.serving.bench.round_log import RoundsSeen, read_rounds
from laps_sd.serving.bench.run import run_bench
from laps_sd.serving.bench.servers import policy_args
from laps_sd.serving.bench.turn import Turn


def result(name: str, finish: float | None, tokens: list[int], **meta: object) -> LoadResult:
    return LoadResult(name, 0.0, finish, finish, tokens, dict(meta), None if finish else "no answer")


def test_rounds_follow_each_other_on_one_clock() -> None:
    turns = [
        Turn("fcfs", 0, [result("a", 2.0, [1, 2]), result("b", 4.0, [1])], None),
        Turn("fcfs", 1, [result("a", 6.0, [1, 2]), result("b", None, [])], None),
    ]
    summary = summary_of(turns)
    assert summary["latency_s"]["mean"] == pytest.approx(4.0)
    assert summary["latency_s_mean_by_round"] == [3.0, 6.0]
    assert (summary["finished"], summary["failed"]) == (3, 1)
    assert summary["throughput_tokens_s"] == pytest.approx(5 / 10)
    assert summary["rank_us_p50"] is None
    assert summary["gap_closed"] is None


def test_accept_length_comes_from_the_histograms() -> None:
    turns = [Turn("x", 0, [result("a", 1.0, [1], spec_correct_drafts_histogram=[2, 0, 2])], (10.0, 90.0))]
    summary = summary_of(turns)
    assert summary["accept_length_mean"] == 2.0
    assert (summary["rank_us_p50"], summary["rank_us_p99"]) == (10.0, 90.0)


def test_a_difference_in_tokens_is_found_and_failures_are_not_differences() -> None:
    same = [
        Turn("fcfs", 0, [result("a", 1.0, [1, 2]), result("b", 1.0, [3])], None),
        Turn("laps-sd", 0, [result("a", 9.0, [1, 2]), result("b", None, [])], None),
    ]
    assert compare_tokens(same) == {"identical_tokens": True, "different_requests": []}
    other = [*same, Turn("hrrn", 0, [result("a", 1.0, [1, 9])], None)]
    assert compare_tokens(other) == {"identical_tokens": False, "different_requests": ["a"]}
    assert compare_tokens(same[:1])["identical_tokens"] is None


def test_our_own_count_of_preemptions_is_used_where_there_is_one() -> None:
    ours = result("a", 1.0, [1], num_retractions=2, laps_sd={"preemptions": 2, "recomputed_tokens": 7})
    assert (ours.outcome().preemptions, ours.outcome().recomputed_tokens) == (2, 7)
    assert result("a", 1.0, [1], num_retractions=3).outcome().preemptions == 3


ROUNDS = {"arrival": 2, "first_token": 5, "end": 12, "spans": [[4, 6], [9, 12]]}


def test_latency_is_given_in_rounds_where_they_were_counted() -> None:
    ours = result("a", 1.0, [1], laps_sd={"preemptions": 1, "rounds": ROUNDS})
    theirs = result("b", 1.0, [1], laps_sd=[{"rounds": {**ROUNDS, "end": 22}}])
    summary = summary_of([Turn("x", 0, [ours, theirs, result("c", 1.0, [1])], None)])
    assert summary["latency_rounds"]["mean"] == 15.0
    assert (summary["ttft_rounds"]["mean"], summary["queue_rounds"]["mean"]) == (3.0, 2.0)
    assert summary_of([Turn("x", 0, [result("c", 1.0, [1])], None)])["latency_rounds"] is None


def test_ratios_pair_the_same_requests_of_the_same_rounds() -> None:
    turns = [
        Turn("fcfs", 0, [result("a", 2.0, [1]), result("b", 4.0, [1])]),
        Turn("las", 0, [result("b", 2.0, [1]), result("a", 1.0, [1])]),
        Turn("fcfs", 1, [result("a", 50.0, [1])]),
    ]
    ratios = ratios_of(turns, ["fcfs", "las"])
    assert ratios["las"]["fcfs"]["latency_s"]["mean"] == {"ratio": 0.5, "low": 0.5, "high": 0.5}
    assert ratios["fcfs"]["las"]["latency_s"]["p99"]["ratio"] == pytest.approx(2.0)
    assert ratios["las"]["fcfs"]["latency_rounds"] is None


def test_the_capacity_is_what_slots_do_while_all_are_busy(tmp_path: Path) -> None:
    rounds = [
        {"round": n, "at": 0.5 * n, "cpu_s": 0.4 * n, "kind": "decode", "requests": 2, "waiting": max(3 - n, 0),
         "tokens": 0, "after_idle": False}
        for n in range(1, 7)
    ]  # fmt: skip
    log = tmp_path / "rounds.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in rounds))
    # Each holds a slot for 5 rounds, so 2 slots do 0.4 requests a round; the only timed round with a queue took 0.5 s.
    results = [result(name, 1.0, [1], laps_sd={"rounds": ROUNDS}) for name in "abc"]
    capacity = capacity_of(results, read_rounds(log), slots=2)
    assert (capacity.per_round, capacity.per_second) == (pytest.approx(0.4), pytest.approx(0.8))
    with pytest.raises(WorkError, match="no request ever waited"):
        capacity_of(results, RoundsSeen([], {}), slots=2)


def test_every_request_is_written_down(tmp_path: Path) -> None:
    write_requests(tmp_path / "r.jsonl", [Turn("fcfs", 0, [result("a", 1.0, [4]), result("b", None, [])], None)])
    rows = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert [row["request_id"] for row in rows] == ["a", "b"]
    assert rows[0]["output_ids"] == [4]
    assert rows[1]["error"] == "no answer"


def test_quantiles_are_read_from_metrics_text() -> None:
    text = (
        'laps_sd_rank_seconds_bucket{le="1e-05"} 10\nlaps_sd_rank_seconds_bucket{le="2e-05"} 90\n'
        'laps_sd_rank_seconds_bucket{le="5e-05"} 100\nlaps_sd_rank_seconds_bucket{le="+Inf"} 100\nother 3\n'
    )
    assert quantiles_us(counts_in(text)) == pytest.approx((15.0, 47.0))
    assert quantiles_us(counts_in("# nothing")) is None
    with pytest.raises(ValueError, match="metrics"):
        counts_in("no metrics")
    assert quantiles_us(counts_in(text), since=counts_in(text)) is None, "nothing was ranked since"


def test_laps_sd_without_a_bundle_is_started_unpredicted(tmp_path: Path) -> None:
    assert policy_args("hrrn", None, None, tmp_path) == ["--schedule-policy", "hrrn"]
    args = policy_args("laps-sd", None, None, tmp_path)
    assert Path(args[-1]).read_text() == "unpredicted: true\n"
    assert policy_args("laps-sd", "models:/m@prod", None, tmp_path)[-2:] == ["--laps-sd-bundle", "models:/m@prod"]


@pytest.mark.parametrize(
    "wrong", [{"policies": ["sjf"]}, {"prompts": []}, {"rounds": 0}, {"rate": -1.0}, {"policies": []}]
)
def test_wrong_usage_is_refused_before_a_server_starts(tmp_path: Path, wrong: dict) -> None:
    usage = {"policies": ["fcfs"], "prompts": ["Hi"], "bundle": None, "out_dir": tmp_path, "max_new_tokens": 4, **wrong}
    with pytest.raises(InputError):
        run_bench(**usage)
