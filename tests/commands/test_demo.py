"""What the demo promises besides its servers (the whole of it runs in tests/e2e/test_demo.py)."""

import json
from dataclasses import replace

import pytest

from laps_sd.demo import OUTPUTS, DemoOptions, _clear, _prompts, bench_requests
from laps_sd.errors import InputError
from laps_sd.report.comparison import policy_rows
from laps_sd.report.demo import demo_report


@pytest.fixture
def options(tmp_path):
    return DemoOptions(out=tmp_path / "out")


def test_no_prompt_that_was_recorded_is_compared_on(options):
    record, burst = _prompts(options)
    assert len(record) == options.recorded
    assert len(burst) == options.burst
    assert not {p.group for p in record} & {p.group for p in burst}


def test_prompts_are_of_many_kinds_and_the_same_for_one_seed(options):
    record, burst = _prompts(options)
    assert len({p.category for p in record + burst}) >= 12
    assert _prompts(options) == (record, burst)
    assert _prompts(replace(options, seed=1)) != (record, burst)


def test_an_earlier_demo_is_cleared_and_nothing_else(options):
    for name in OUTPUTS:
        (options.out / name).mkdir(parents=True)
    (options.out / "notes.txt").write_text("mine")
    _clear(options.out)
    assert [path.name for path in options.out.iterdir()] == ["notes.txt"]


def test_a_file_in_the_way_is_one_sentence(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(InputError, match="cannot be written to"):
        _clear(tmp_path / "out")


def test_requests_of_the_comparison_are_read_back(tmp_path):
    rows = [
        {"policy": "fcfs", "arrival_s": 1.0, "finish_s": 3.5, "output_ids": [1, 2, 3]},
        {"policy": "laps-sd", "arrival_s": 1.0, "finish_s": None, "output_ids": []},
    ]
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert bench_requests(tmp_path) == {
        "fcfs": [{"latency_s": 2.5, "output_tokens": 3}],
        "laps-sd": [{"latency_s": None, "output_tokens": 0}],
    }


SPREAD = {"mean": 2.0, "p50": 2.0, "p90": 3.0, "p99": 4.0}
FIGURES = {
    "workload": {"n": 2, "slots": 4},
    "policies": {
        "fcfs": {"latency_s": SPREAD, "ttft_s": SPREAD, "preemptions": 0, "gap_closed": None},
        "laps-sd": {"latency_s": {**SPREAD, "mean": 1.5}, "ttft_s": None, "preemptions": 3, "gap_closed": None},
    },
    "identical_tokens": True,
    "evaluation": {
        "n": 8,
        "n_censored": 1,
        "length": {"kendall_tau": 0.5, "mae_tokens": 20.0, "coverage_80": None},
        "acceptance": {
            "mape_accept_length": {"0": 0.2, "8": 0.1, "32": None},
            "mape_accept_length_unseeded": {"0": 0.3, "8": 0.15, "32": None},
            "mape_accept_length_raw": {"0": None, "8": 0.2, "32": None},
        },
        "baselines": {"constant": {"length": {"kendall_tau": None, "mae_tokens": 50.0}}, "category": {"length": None}},
    },
    "run_id": "abc",
    "experiment": "laps-sd-demo",
    "serve": "laps-sd serve --cpu -- --speculative-algorithm NGRAM --schedule-policy laps-sd --laps-sd-bundle bundle",
    "tracking_uri": "sqlite:///x.db",
    "bundle": "out/bundle",
}


def test_the_table_compares_with_fcfs_and_leaves_out_what_nobody_measured():
    headers, rows = policy_rows(FIGURES["policies"])
    assert headers == ["policy", "mean s", "/ fcfs", "p50", "p99", "TTFT", "preempts"]
    assert rows[1] == ["laps-sd", "1.5", "0.75", "2", "4", "–", "3"]


def test_the_report_shows_latency_accuracy_and_where_the_models_are():
    requests = {"fcfs": [{"latency_s": 2.0, "output_tokens": 5}], "laps-sd": [{"latency_s": None, "output_tokens": 0}]}
    html = demo_report(FIGURES, policy_rows(FIGURES["policies"]), requests).render()
    for text in ("0.75", "identical tokens", "predicted from the prompt", "MLflow run abc", "Plotly.newPlot"):
        assert text in html


def test_the_report_says_when_tokens_differ():
    figures = {**FIGURES, "identical_tokens": False}
    html = demo_report(figures, policy_rows(FIGURES["policies"]), {"fcfs": [], "laps-sd": []}).render()
    assert "tokens differ" in html
