"""``laps-sd simulate`` from outside: options, JSON keys, exit codes."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from laps_sd.cli import run
from laps_sd.data import RequestRecord, builtin_trace, read_records, write_records
from laps_sd.data.progress.counting import COUNTERS, checkpoints_below
from laps_sd.predictors import fit_bundle
from laps_sd.predictors.acceptance.predictor import PromptAcceptance
from laps_sd.report.simulation import TAIL_LINE
from laps_sd.scheduler.posterior.settings import PosteriorSettings
from laps_sd.scheduler.prediction import Prediction
from laps_sd.scheduler.service import COST_MODELS
from laps_sd.scheduler.settings import PRESETS, Settings
from laps_sd.scheduler.survival import SurvivalCurve

Simulate = Callable[..., dict[str, Any]]


def record(i: int, **more: Any) -> RequestRecord:
    steps = 3 + 11 * i % 60
    fields: dict[str, Any] = {
        "request_id": f"r{i}",
        "prompt_tokens": 20 + i,
        "output_tokens": 2 * steps + 1,
        "finish_reason": "stop",
        "accept_lengths": (2,) * steps,
        "verify_steps": steps,
        "max_correct_drafts": 4,
    }
    return RequestRecord(**{**fields, **more})


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    cut = record(99, finish_reason="length", max_new_tokens=1000)
    write_records(path, [*(record(i) for i in range(40)), cut])
    return path


@pytest.fixture
def simulate(trace: Path, tmp_path: Path) -> Simulate:
    def call(*options: str, on: Path = trace) -> dict[str, Any]:
        out = tmp_path / "out.json"
        assert run(["simulate", "--trace", str(on), "--workers", "1", "--json", str(out), *options]) == 0
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        return found

    return call


def test_all_promised_keys_are_there(simulate: Simulate) -> None:
    found = simulate("--predictions", "noise:0.3", "--slots", "1", "--load", "0.9", "--seeds", "2", "--seed", "5")
    assert {"n": 40, "slots": 1, "load": 0.9, "seed": 5}.items() <= found["workload"].items()
    assert found["workload"]["censored_left_out"] == 1
    assert list(found["policies"]) == [
        "fcfs", "hrrn", "sjf-predicted", "las", "mlfq", "gittins", "laps-sd", "oracle-srpt",
    ]  # fmt: skip
    for summary in found["policies"].values():
        assert set(summary) == {
            "latency_s", "ttft_s", "tpot_s", "slowdown_mean", "preemptions", "recomputed_tokens", "finished", "failed",
            "throughput_tokens_s", "rank_us_p50", "rank_us_p99", "gap_closed",
        }  # fmt: skip
        assert set(summary["latency_s"]) == {"mean", "p50", "p90", "p99"}
        assert (summary["finished"], summary["failed"]) == (40, 0)
    assert found["policies"]["fcfs"]["gap_closed"] == 0
    assert found["policies"]["oracle-srpt"]["gap_closed"] == 1
    assert found["policies"]["laps-sd"]["gap_closed"] > 0.5
    assert found["seeds"]["laps-sd"]["seed"] == [5, 6]


def without_clock(found: dict[str, Any]) -> dict[str, Any]:
    for table in (found["policies"], found["ablation"] or {}):
        for summary in table.values():
            del summary["rank_us_p50"], summary["rank_us_p99"]
    return found


def test_the_same_command_gives_the_same_numbers(simulate: Simulate) -> None:
    options = ("--predictions", "shuffled:noise:0.5", "--slots", "2", "--policies", "laps-sd,las", "--seeds", "2")
    assert without_clock(simulate(*options)) == without_clock(simulate(*options))


def test_the_gap_is_known_though_the_references_were_not_asked_for(simulate: Simulate) -> None:
    found = simulate("--predictions", "noise:0.1", "--policies", "laps-sd", "--slots", "1", "--load", "0.9")
    assert list(found["policies"]) == ["laps-sd"]
    assert found["policies"]["laps-sd"]["gap_closed"] > 0.5


def test_where_nothing_waits_the_gap_is_null(simulate: Simulate) -> None:
    assert (
        simulate("--predictions", "none", "--slots", "40", "--load", "0.1")["policies"]["laps-sd"]["gap_closed"] is None
    )


def test_ablation_and_sweep_come_on_request(simulate: Simulate) -> None:
    found = simulate("--predictions", "noise:0.3", "--ablation", "--sweep", "0.5,0.9", "--policies", "laps-sd")
    assert {"laps-sd", "laps-sd:paper"} <= found["ablation"].keys()
    assert [point["load"] for point in found["sweep"]] == [0.5, 0.9]


def test_predictions_from_a_file(simulate: Simulate, tmp_path: Path, trace: Path) -> None:
    wire = Prediction(SurvivalCurve.lognormal(60, 0.5), 2.0, 8.0).to_wire()
    rows = [{"request_id": r.request_id, "prediction": wire} for r in read_records(trace)]
    path = tmp_path / "predictions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found = simulate("--predictions", str(path), "--policies", "laps-sd")
    assert found["workload"]["predictions_kendall_tau"] is None  # all alike
    assert found["policies"]["laps-sd"]["finished"] == 40


def test_a_trace_with_arrivals_keeps_their_pattern_at_any_load(simulate: Simulate, tmp_path: Path) -> None:
    path = tmp_path / "timed.jsonl"
    write_records(path, [record(i, arrival_s=float(100 * (i // 10))) for i in range(40)])
    own = simulate("--predictions", "none", "--policies", "fcfs", on=path)["workload"]
    assert own["arrivals"] == "trace"
    assert own["load"] == pytest.approx(own["load_offered"])
    assert simulate("--predictions", "none", "--load", "0.5", on=path)["workload"]["load_offered"] == pytest.approx(0.5)
    assert simulate("--predictions", "none", "--rate", "2", on=path)["workload"]["arrivals"] == "random"


def test_accept_lengths_can_be_borrowed(simulate: Simulate, tmp_path: Path, trace: Path) -> None:
    path = tmp_path / "bare.jsonl"
    bare = [record(i, accept_lengths=None, verify_steps=None, max_correct_drafts=None) for i in range(10)]
    write_records(path, bare)
    assert simulate("--predictions", "none", on=path)["workload"]["accept_length_mean"] == 1.0
    lent = simulate("--predictions", "none", "--acceptance-from", str(trace), on=path)
    assert lent["workload"]["accept_length_mean"] == pytest.approx(2.0)


def test_a_histogram_is_enough(simulate: Simulate, tmp_path: Path) -> None:
    path = tmp_path / "histogram.jsonl"
    known = [
        record(i, accept_lengths=None, output_tokens=31, verify_steps=10, correct_drafts_histogram=(2, 2, 2, 2, 2))
        for i in range(10)
    ]
    write_records(path, known)
    assert simulate("--predictions", "none", on=path)["workload"]["accept_length_mean"] == pytest.approx(3.0)


def test_a_cost_model_is_fitted_and_used(
    simulate: Simulate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, cost = tmp_path / "timed.jsonl", tmp_path / "cost.json"
    rng = np.random.default_rng(0)
    rows = []
    for i in range(20):
        ttft = 0.01 + 1e-4 * (20 + i)
        steps = 3 + 11 * i % 60
        rows.append(record(i, ttft_s=ttft, e2e_s=ttft + 0.02 * steps * float(rng.uniform(0.98, 1.02))))
    write_records(path, rows)
    assert run(["simulate", "--trace", str(path), "--fit-cost-model", str(cost)]) == 0
    assert "20.0 ms alone" in capsys.readouterr().out.replace("19.9", "20.0").replace("20.1", "20.0")
    found = simulate("--predictions", "none", "--cost-model", str(cost), "--policies", "fcfs")
    assert found["workload"]["cost_model"]["step_s"] == pytest.approx(0.02, rel=0.02)
    assert 0.02 < found["policies"]["fcfs"]["latency_s"]["mean"] < 60


def test_the_report_is_one_file_with_the_honest_part(simulate: Simulate, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    simulate("--predictions", "noise:0.5", "--slots", "1", "--load", "0.9", "--seeds", "1", "--report", str(report))
    html = report.read_text(encoding="utf-8")
    for part in (
        "Where nothing is gained",
        "Latency",
        "Queue",
        "What each part of laps-sd adds",
        "laps-sd:paper",
        "tail grows",
    ):
        assert part in html


def test_the_curve_of_the_report_goes_from_the_least_mean_to_the_shortest_tail(tmp_path: Path) -> None:
    assert [PRESETS.get(name.partition(":")[2], {}).get("tail", Settings().tail) for name in TAIL_LINE] == sorted(
        {0.0, Settings().tail, PRESETS["tail"]["tail"]}
    )


def test_cost_models_are_known_by_name(simulate: Simulate) -> None:
    shipped = Path(__file__).parents[2] / "benchmarks" / "cost-model-cpu.json"
    options = ("--predictions", "none", "--policies", "fcfs", "--seeds", "1", "--sweep", "none")
    means = {}
    for name in ("cpu", str(shipped), *COST_MODELS):
        means[name] = simulate(*options, "--cost-model", name)["policies"]["fcfs"]["latency_s"]["mean"]
    assert means["cpu"] == means[str(shipped)]
    assert means["gpu-small"] < means["gpu-large"] < means["gpu"] < means["cpu"]


def test_what_a_preempted_request_keeps_and_the_size_of_a_chunk_cost(simulate: Simulate) -> None:
    options = ("--predictions", "noise:0.3", "--slots", "4", "--load", "1.1", "--cost-model", "gpu")
    kept = simulate(*options, "--policies", "las")["policies"]["las"]["latency_s"]["mean"]
    assert simulate(*options, "--policies", "las", "--drop-kv")["policies"]["las"]["latency_s"]["mean"] > kept
    whole = simulate(*options, "--policies", "fcfs")["policies"]["fcfs"]["latency_s"]["mean"]
    chunked = simulate(*options, "--policies", "fcfs", "--chunk-tokens", "8")["policies"]["fcfs"]["latency_s"]["mean"]
    assert chunked > whole


def test_a_setting_changes_what_laps_sd_does(simulate: Simulate) -> None:
    options = ("--predictions", "noise:0.3", "--slots", "1", "--load", "0.9", "--policies", "laps-sd")
    assert simulate(*options)["policies"]["laps-sd"]["preemptions"] > 0
    assert simulate(*options, "--set", "preemption=false")["policies"]["laps-sd"]["preemptions"] == 0


def test_a_setting_holds_in_the_ablation_too(simulate: Simulate) -> None:
    options = ("--predictions", "noise:0.3", "--slots", "1", "--load", "0.9", "--policies", "laps-sd", "--ablation")
    before, after = simulate(*options)["ablation"], simulate(*options, "--set", "preemption=false")["ablation"]
    assert before["laps-sd:no-trust"]["preemptions"] > 0
    assert after["laps-sd:no-trust"]["preemptions"] == 0


def test_a_bundle_brings_its_posterior_as_it_does_to_a_server(simulate: Simulate, tmp_path: Path) -> None:
    records = builtin_trace("ngram")[:120]
    write_records(tmp_path / "prompts.jsonl", records)
    bundle = fit_bundle(records)
    assert isinstance(bundle.acceptance, PromptAcceptance)
    fitted = PosteriorSettings(discount=0.9, dispersion=2.0)
    runs = [replace(run, settings=fitted) for run in bundle.acceptance.runs]
    bundle.acceptance = PromptAcceptance(bundle.acceptance.features, runs)
    bundle.save(tmp_path / "bundle")
    options = ("--policies", "laps-sd", "--seeds", "1")
    found = simulate("--bundle", str(tmp_path / "bundle"), *options, on=tmp_path / "prompts.jsonl")
    assert found["workload"]["posterior"] == asdict(fitted)
    assert simulate("--predictions", "none", *options)["workload"]["posterior"] == asdict(PosteriorSettings())


def test_lengths_are_refined_with_a_stated_quality_or_not_at_all(simulate: Simulate) -> None:
    options = ("--predictions", "noise:1", "--policies", "laps-sd,laps-sd:no-refinement", "--seeds", "2")
    none, noise, own = (simulate(*options, "--refine", text) for text in ("none", "noise", "noise:20=0.1,40=0"))
    assert simulate(*options)["policies"]["laps-sd"]["latency_s"] == none["policies"]["laps-sd"]["latency_s"]
    assert [found["workload"]["refine"] for found in (none, noise, own)] == [
        "none",
        "noise:32=0.59,64=0.49,128=0.4,256=0.32,512=0.31",
        "noise:20=0.1,40=0",
    ]
    without = [found["policies"]["laps-sd:no-refinement"]["latency_s"] for found in (none, noise, own)]
    assert without[0] == without[1] == without[2]
    assert none["policies"]["laps-sd"]["latency_s"] == without[0]
    assert own["policies"]["laps-sd"]["latency_s"] != without[2]


def test_what_answers_said_refines_a_replay_by_itself(simulate: Simulate, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = []
    for i, length in enumerate(random.integers(20, 300, 150).tolist()):
        told = [min(length // 10, 50) if name == "announced_items" else 1 for name in COUNTERS]
        counts = tuple(told * len(checkpoints_below(length)))
        asked = {
            "prompt": f"Ask {chr(97 + i % 26)}{chr(97 + i // 26)} now",
            "accept_lengths": None,
            "verify_steps": None,
        }
        rows.append(record(i, output_tokens=length, progress=counts, progress_table="v1-abc", **asked))
    write_records(tmp_path / "counted.jsonl", rows)
    bundle = fit_bundle(rows, predictor="constant", acceptance="run_mean")
    assert bundle.refinement is not None
    bundle.save(tmp_path / "bundle")
    told = ("--bundle", str(tmp_path / "bundle"), "--policies", "laps-sd,laps-sd:no-refinement", "--slots", "1")
    found = simulate(*told, "--seeds", "2", on=tmp_path / "counted.jsonl")
    assert found["workload"]["refine"] == "recorded"
    refined, plain = (found["policies"][name]["latency_s"]["mean"] for name in ("laps-sd", "laps-sd:no-refinement"))
    assert refined < 0.97 * plain
    off = simulate(*told, "--seeds", "2", "--refine", "none", on=tmp_path / "counted.jsonl")
    assert off["policies"]["laps-sd"]["latency_s"]["mean"] == plain


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--policies", "fcfs,best"), "unknown best"),
        (("--load", "0.9", "--rate", "2"), "not both"),
        (("--predictions", "noise:lots"), "0 to 10"),
        (("--predictions", "bundle"), "needs --bundle"),
        (("--predictions", "shuffled"), "needs something to corrupt"),
        (("--predictions", "reversed:none"), "needs something to corrupt"),
        (("--predictions", "shuffled:reversed:noise:1"), "not a file"),
        (("--predictions", "odd.jsonl"), "request_id must be text, got ['r1']"),
        (("--predictions", "twice.jsonl"), "twice.jsonl, line 2: request 'r1' has a prediction already"),
        (("--predictions", "nowhere.jsonl"), "not a file"),
        (("--refine", "sharp"), "--refine sharp: expected recorded, none, noise"),
        (("--refine", "noise:64"), "--refine noise:64: expected recorded, none, noise"),
        (("--refine", "noise:64=0.5,64=0.4"), "each once"),
        (("--refine", "noise:0=0.5"), "tokens from 1"),
        (("--refine", "noise:64=-1"), "S from 0 to 10"),
        (("--refine", "noise", "--predictions", "none"), "every request has a prediction"),
        (("--refine", "recorded", "--predictions", "noise:0.6"), "corrects predictions of bundle or oof"),
        (("--cost-model", "nowhere.json"), "no such file"),
        (("--set", "magic=1"), "no such setting"),
        (("--set", "margin=0"), "margin must be from 1 to 100"),
        (("--set", "margin=wide"), "expected float"),
        (("--sweep", "0.5,fast"), "positive loads"),
        (("--load", "-1"), "--load -1: expected a number from"),
        (("--load", "nan"), "--load nan: expected a number from"),
        (("--load", "inf"), "--load inf: expected a number from"),
        (("--rate", "1e-300"), "--rate 1e-300: expected a number from"),
        (("--rate", "1", "--burstiness", "inf"), "--burstiness inf: expected a number from 0"),
        (("--sweep", "nan"), "positive loads"),
        (("--policies", ","), "unknown (none)"),
        (("--cost-model", "."), "cannot be read"),
        (("--cost-model", "list.json"), "not a cost model"),
        (("--predictions", "latin.jsonl"), "expected JSON lines in UTF-8"),
        (("--predictions", "huge.jsonl"), "huge.jsonl, line 1: expected request_id and a prediction"),
        (("--json", "trace.jsonl"), "is read here"),
        (("--json", "out", "--report", "out"), "named for two results"),
        (("--fit-cost-model", "cost.json"), "needs 3 requests"),
    ],
)
def test_wrong_usage_is_said_in_one_sentence(
    options: tuple[str, ...],
    complaint: str,
    trace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "latin.jsonl").write_bytes(b"\xff\n")
    odd = {"request_id": ["r1"], "edges": [0, 1], "survival": [1, 0.5], "accept_length": 1, "accept_strength": 1}
    (tmp_path / "odd.jsonl").write_text(json.dumps(odd))
    (tmp_path / "twice.jsonl").write_text(2 * (json.dumps({**odd, "request_id": "r1"}) + "\n"))
    (tmp_path / "huge.jsonl").write_text('{"request_id": "r1", "edges": [0, 1e999], "survival": [1, 0.5]}\n')
    assert run(["simulate", "--trace", str(trace), *options]) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert "Traceback" not in said


def test_the_trace_survives_being_named_for_the_results(trace: Path) -> None:
    before = trace.read_bytes()
    assert run(["simulate", "--trace", str(trace), "--json", str(trace)]) == 2
    assert trace.read_bytes() == before


def test_a_trace_of_cut_requests_only_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cut.jsonl"
    write_records(path, [record(1, finish_reason="length", max_new_tokens=1000)])
    assert run(["simulate", "--trace", str(path)]) == 2
    assert "nothing to replay" in capsys.readouterr().err


def burst(i: int) -> RequestRecord:
    return record(i, arrival_s=float(max(0, i - 15)))


def of_one_token(i: int) -> RequestRecord:
    return record(i, output_tokens=1, accept_lengths=None, verify_steps=None)


@pytest.mark.parametrize(
    ("make", "options", "complaint"),
    [
        (burst, ("--requests", "3", "--load", "0.5", "--seeds", "20"), "arrive at the same moment"),
        (of_one_token, (), "take no time"),
        (lambda i: record(i, output_tokens=10**9), (), "1,000,000,000 output tokens; a replay takes 16,777,216"),
    ],
)
def test_what_cannot_be_replayed_is_said_in_one_sentence(
    make: Callable[[int], RequestRecord],
    options: tuple[str, ...],
    complaint: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "odd.jsonl"
    write_records(path, [make(i) for i in range(20)])
    assert run(["simulate", "--trace", str(path), "--workers", "1", "--policies", "fcfs", *options]) == 2
    assert complaint in capsys.readouterr().err


def test_seeds_in_which_few_finish_are_averaged_and_drawn(simulate: Simulate, tmp_path: Path) -> None:
    options = ("--requests", "5", "--kv-tokens", "60", "--seeds", "8", "--policies", "fcfs,laps-sd", "--sweep", "none")
    found = simulate(*options, "--report", str(tmp_path / "report.html"))
    assert 0 < found["policies"]["fcfs"]["failed"] < 5
    assert found["slowdown_by_length"]["fcfs"][0].keys() == {"tokens_from", "tokens_to", "slowdown_mean"}


@pytest.mark.parametrize("policies", ["las", "laps-sd:paper"])
def test_a_report_needs_no_laps_sd_among_the_policies(simulate: Simulate, tmp_path: Path, policies: str) -> None:
    report = tmp_path / "report.html"
    found = simulate(
        "--predictions", "none", "--policies", policies, "--seeds", "1", "--sweep", "none", "--report", str(report)
    )
    assert list(found["policies"]) == [policies]
    assert next(iter(found["ablation"])) == "laps-sd"
    assert report.exists()


def test_a_report_of_failures_claims_nothing(simulate: Simulate, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    simulate("--predictions", "none", "--kv-tokens", "1", "--seeds", "1", "--sweep", "none", "--report", str(report))
    html = report.read_text(encoding="utf-8")
    assert "no request finished" in html
    assert "nothing to gain" not in html
    assert "nan%" not in html


def test_a_trace_may_have_a_name_that_is_no_text(simulate: Simulate, trace: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(trace.parent) + b"/odd\xff.jsonl"))
    odd.write_bytes(trace.read_bytes())
    found = simulate("--predictions", "none", "--policies", "fcfs", "--seeds", "1", on=odd)
    assert found["workload"]["trace"] == "odd\\udcff.jsonl"


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"max_correct_drafts": 10**9}, "1,000,000,000 drafts per step"),
        (
            {
                "accept_lengths": None,
                "verify_steps": 10**12,
                "correct_drafts_histogram": (10**12,),
                "max_correct_drafts": None,
            },
            "1,000,000,000,000 verify steps",
        ),
    ],
)
def test_a_record_beyond_all_bounds_is_named(
    fields: dict[str, Any], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.jsonl"
    write_records(path, [record(i, **(fields if i == 3 else {})) for i in range(5)])
    assert run(["simulate", "--trace", str(path), "--workers", "1", "--predictions", "none"]) == 2
    assert f"request r3: {complaint}" in capsys.readouterr().err


def test_what_is_left_out_is_said_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.jsonl"
    rows = [record(i) for i in range(5)]
    rows += [record(10, output_tokens=0, finish_reason="stop"), record(11, finish_reason="abort")]
    rows += [record(12, finish_reason="length", max_new_tokens=1000), record(13, finish_reason="length")]
    write_records(path, [r.replace(**NO_STEPS) if r.output_tokens == 0 else r for r in rows])
    assert run(["simulate", "--trace", str(path), "--policies", "fcfs", "--seeds", "1", "--workers", "1"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "left out: 2 cut at a limit, 1 aborted, 1 without a token of output" in said


def test_a_trace_so_sparse_that_its_unit_must_be_wrong_is_asked_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for step, asked in ((1e6, True), (10.0, False)):
        path = tmp_path / "trace.jsonl"
        write_records(path, [record(i).replace(arrival_s=i * step) for i in range(20)])
        assert run(["simulate", "--trace", str(path), "--policies", "fcfs", "--seeds", "1", "--workers", "1"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert ("Are they in seconds?" in said) is asked
        assert ("20 requests over 219.9 days" in said) is asked


NO_STEPS = {"verify_steps": None, "accept_lengths": None, "correct_drafts_histogram": None}
