"""Figures of a live comparison, from what clients saw."""

import json
from pathlib import Path

import pytest

from laps_sd.errors import InputError
from laps_sd.serving.bench.figures import Turn, compare_tokens, summary_of, write_requests
from laps_sd.serving.bench.load import LoadResult, poisson_arrivals
from laps_sd.serving.bench.rank_time import counts_in, quantiles_us
from laps_sd.serving.bench.run import policy_args, run_bench


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


def test_arrivals_are_poisson_and_repeatable() -> None:
    arrivals = poisson_arrivals(4000, 5.0, seed=3)
    assert arrivals == poisson_arrivals(4000, 5.0, seed=3)
    assert arrivals[0] == 0.0
    assert arrivals == sorted(arrivals)
    assert 4000 / arrivals[-1] == pytest.approx(5.0, rel=0.1)
    assert poisson_arrivals(3, None, seed=0) == [0.0, 0.0, 0.0]


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
