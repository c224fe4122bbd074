"""The figures that people compare policies by."""

import pytest

from laps_sd.scheduler.outcomes import RequestOutcome, close_gaps, gap_closed, slowdown_by_length, summarise


def outcome(latency: float, *, tokens: int = 11, ttft: float = 1.0, service: float | None = 2.0) -> RequestOutcome:
    return RequestOutcome("r", 10.0, 10.0 + ttft, 10.0 + latency, tokens, service, preemptions=1, recomputed_tokens=5)


def test_one_request_as_its_client_sees_it() -> None:
    o = outcome(6.0)
    assert (o.latency_s, o.ttft_s, o.tpot_s, o.slowdown) == (6.0, 1.0, 0.5, 3.0)


def test_a_one_token_answer_has_no_time_per_further_token() -> None:
    assert outcome(1.0, tokens=1).tpot_s is None


def test_summary_has_the_promised_keys_and_adds_up() -> None:
    summary = summarise([outcome(2.0), outcome(4.0), outcome(6.0)], rank_us=[10.0, 20.0, 30.0])
    assert summary["latency_s"] == pytest.approx({"mean": 4.0, "p50": 4.0, "p90": 5.6, "p99": 5.96})
    assert summary["slowdown_mean"] == pytest.approx(2.0)
    assert (summary["preemptions"], summary["recomputed_tokens"]) == (3, 15)
    assert (summary["finished"], summary["failed"]) == (3, 0)
    assert summary["throughput_tokens_s"] == pytest.approx(33 / 6)
    assert summary["rank_us_p50"] == 20.0
    assert summary["gap_closed"] is None


def test_failed_requests_are_counted_and_touch_no_latency() -> None:
    failed = RequestOutcome("x", 0.0, 0.5, None, 3)
    summary = summarise([outcome(2.0), failed])
    assert (summary["finished"], summary["failed"]) == (1, 1)
    assert summary["latency_s"] is not None
    assert summary["latency_s"]["mean"] == 2.0


def test_what_nobody_measured_is_none_and_never_a_number() -> None:
    summary = summarise([])
    unknown = ("latency_s", "ttft_s", "tpot_s", "slowdown_mean", "throughput_tokens_s", "rank_us_p50", "rank_us_p99")
    assert [summary[key] for key in unknown] == [None] * len(unknown)  # type: ignore[literal-required]
    assert summarise([outcome(2.0, service=None)])["slowdown_mean"] is None


def test_gap_closed_runs_from_fcfs_to_the_clairvoyant() -> None:
    assert gap_closed(200.0, 200.0, 100.0) == 0.0
    assert gap_closed(100.0, 200.0, 100.0) == 1.0
    assert gap_closed(250.0, 200.0, 100.0) == -0.5


def test_gap_is_null_where_there_is_nothing_to_gain() -> None:
    assert gap_closed(101.0, 102.9, 100.0) is None
    assert gap_closed(101.0, 90.0, 100.0) is None
    assert gap_closed(101.0, 103.1, 100.0) is not None


def test_gaps_need_both_references() -> None:
    table = {"fcfs": summarise([outcome(4.0)]), "laps-sd": summarise([outcome(3.0)])}
    close_gaps(table)
    assert table["laps-sd"]["gap_closed"] is None
    table["oracle-ride"] = summarise([outcome(2.0)])
    close_gaps(table)
    assert table["laps-sd"]["gap_closed"] == pytest.approx(0.5)


def test_slowdown_is_shown_from_the_shortest_to_the_longest_answers() -> None:
    outcomes = [outcome(2.0 * n, tokens=n) for n in range(1, 9)]
    assert slowdown_by_length(outcomes) == [(1, 2, 1.5), (3, 4, 3.5), (5, 6, 5.5), (7, 8, 7.5)]
    assert slowdown_by_length([outcome(1.0, service=None)]) == []
