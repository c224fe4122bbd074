"""``laps-sd evaluate`` as a person types it."""

import json
import shutil

import numpy as np
import pytest

from laps_sd.data import RequestRecord, write_records
from laps_sd.data.progress.counting import COUNTERS, checkpoints_below

CONSTANT = ("--cv", "2", "--predictor", "constant", "--no-mlflow")


def test_a_bundle_of_mlflow_is_evaluated_beside_baselines_with_json_and_report(
    at_work, typed, spec_trace, read_json, figures_contract, lacking
):
    code, out, _ = typed(
        "evaluate", "--bundle", "models:/small@champion", "--data", spec_trace, "--json", "new/e.json", "--report",
        "new/e.html",
    )  # fmt: skip
    assert code == 0
    assert all(name in out for name in ("predicted", "constant", "category"))
    assert "one prediction took" in out
    figures = read_json(at_work / "new/e.json")
    assert figures["n"] == 60
    assert lacking(figures_contract, figures) == []
    for part in ("acceptance", "execution_time"):
        assert figures[part] is not None
    for baseline in ("constant", "prompt_length", "category"):
        assert lacking(figures_contract["length"], figures["baselines"][baseline]["length"]) == []
    assert "Prediction accuracy" in (at_work / "new/e.html").read_text()


def test_what_the_records_do_not_tell_is_null(at_work, typed, plain_records, read_json, figures_contract, lacking):
    write_records(at_work / "plain.jsonl", plain_records)
    code, _, _ = typed("evaluate", *CONSTANT, "--data", "plain.jsonl", "--json", "plain.json")
    assert code == 0
    figures = read_json(at_work / "plain.json")
    assert lacking(figures_contract, figures) == []
    assert figures["acceptance"] is None
    assert figures["execution_time"] is None


def test_what_answers_said_shows_in_table_json_and_report(at_work, typed, read_json):
    random = np.random.default_rng(0)
    rows = []
    for i, length in enumerate(random.integers(20, 400, 240).tolist()):
        announced = [min(length // 20, 50) if name == "announced_items" else 1 for name in COUNTERS]
        rows.append(
            RequestRecord(
                request_id=f"r{i}",
                prompt=f"Ask {chr(97 + i % 26)}{chr(97 + i // 26)} now",
                prompt_tokens=5,
                output_tokens=length,
                finish_reason="stop",
                progress=tuple(announced * len(checkpoints_below(length))),
                progress_table="v1-abc",
            )
        )
    write_records(at_work / "counted.jsonl", rows)
    told = ("--data", "counted.jsonl", "--json", "c.json", "--report", "c.html")
    code, out, _ = typed("evaluate", *CONSTANT, *told)
    assert code == 0
    assert "by tokens so far: at arrival → refined" in out
    figures = read_json(at_work / "c.json")["refinement"]
    assert figures["kendall_tau_refined"]["64"] > figures["kendall_tau_arrival"]["64"] + 0.3
    assert "Length in flight" in (at_work / "c.html").read_text()


def test_cross_validation_takes_several_traces(at_work, typed, spec_trace):
    code, out, _ = typed("evaluate", *CONSTANT, "--data", spec_trace, "--data", spec_trace)
    assert code == 0
    assert "120 requests" in out


def test_a_trace_may_follow_the_first(at_work, typed, spec_trace):
    code, out, _ = typed("evaluate", *CONSTANT, "--data", spec_trace, spec_trace)
    assert code == 0
    assert "120 requests" in out


@pytest.mark.parametrize(
    "odd",
    [
        lambda rows: rows[:1],
        lambda rows: rows[:2],
        lambda rows: [r.replace(finish_reason="length") for r in rows],
        lambda rows: [r.replace(output_tokens=7) for r in rows],
        lambda rows: [r.replace(prompt="") for r in rows],
    ],
    ids=["one request", "two requests", "all cut", "one length", "no word"],
)
def test_odd_traces_give_null_where_nothing_can_be_said(
    at_work, typed, plain_records, odd, read_json, figures_contract, lacking
):
    write_records(at_work / "odd.jsonl", odd(plain_records))
    code, _, err = typed(
        "evaluate", "--bundle", "bundle", "--data", "odd.jsonl", "--no-mlflow", "--json", "odd.json", "--report",
        "odd.html",
    )  # fmt: skip
    assert (code, err) == (0, "")
    figures = read_json(at_work / "odd.json")
    assert lacking(figures_contract, figures) == []
    assert figures["length"]["kendall_tau"] in (None, -1.0, 1.0)  # two requests are one pair


def test_a_link_to_a_bundle_is_that_bundle(at_work, typed, spec_trace):
    (at_work / "link").symlink_to("bundle")
    code, _, _ = typed("evaluate", "--bundle", "link", "--data", spec_trace, "--no-mlflow")
    assert code == 0


class TestRefusals:
    """Exit 2 and one sentence, with nothing made: no result, no store, no run."""

    @pytest.mark.parametrize(
        ("bundle", "reason"),
        [
            ("nope", "no bundle at nope; make one with `laps-sd train`"),
            ("models:/nobody@champion", "there is no MLflow store"),
            ("runs:/0123", "there is no MLflow store"),
        ],
    )
    def test_no_bundle(self, refused, spec_trace, bundle, reason):
        assert reason in refused("evaluate", "--bundle", bundle, "--data", spec_trace)

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"schema_version": 99}, "newer than 1"),
            ({"files": {}}, "train it again"),
            ({"training": {}}, "no fingerprint"),
            ({"training": None}, "no fingerprint"),
        ],
    )
    def test_a_manifest_that_cannot_be_used(self, refused, trained, tmp_path, spec_trace, change, reason):
        shutil.copytree(trained / "bundle", tmp_path / "other")
        manifest = json.loads((tmp_path / "other/manifest.json").read_text())
        (tmp_path / "other/manifest.json").write_text(json.dumps({**manifest, **change}))
        assert reason in refused("evaluate", "--bundle", tmp_path / "other", "--data", spec_trace)

    def test_a_flipped_byte(self, refused, trained, tmp_path, spec_trace):
        shutil.copytree(trained / "bundle", tmp_path / "other")
        content = bytearray((tmp_path / "other/length.npz").read_bytes())
        content[50] ^= 1
        (tmp_path / "other/length.npz").write_bytes(content)
        said = refused("evaluate", "--bundle", tmp_path / "other", "--data", spec_trace)
        assert "checksum of length.npz differs" in said

    def test_data_that_cannot_be_read(self, refused, trained, tmp_path):
        (tmp_path / "bad.jsonl").write_text('{"request_id": "a"}\n')
        for file, reason in (("none.jsonl", "no such file"), (tmp_path / "bad.jsonl", "line 1: prompt_tokens")):
            assert reason in refused("evaluate", "--bundle", trained / "bundle", "--data", file)

    def test_requests_without_prompts(self, refused, trained, tmp_path, plain_records):
        write_records(tmp_path / "silent.jsonl", [r.replace(prompt=None) for r in plain_records])
        for how in (("--cv", "5"), ("--bundle", trained / "bundle")):
            assert "no record carries its prompt" in refused("evaluate", *how, "--data", tmp_path / "silent.jsonl")

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            ([], "either a bundle"),
            (["--cv", "500"], "as many groups of prompts"),
            (["--cv", "2", "--predictor", "best"], "unknown length predictor"),
            (["--cv", "2", "--features", "best"], "unknown feature set"),
            (["--cv", "2", "--predictor", "transformer", "--encoder", "/nowhere"], "there is no such folder"),
            (["--cv", "2", "--experiment", " "], "an experiment needs a name"),
            (["--cv", "2", "--json", "a", "--report", "./a"], "named for two results"),
        ],
    )
    def test_wrong_words(self, refused, spec_trace, arguments, reason):
        assert reason in refused("evaluate", "--data", spec_trace, *arguments)

    def test_folds_that_leave_too_little(self, refused, tmp_path, plain_records):
        write_records(tmp_path / "few.jsonl", plain_records[:18])
        assert "leaves 14 requests to train on" in refused("evaluate", "--cv", "5", "--data", tmp_path / "few.jsonl")
        cut = [plain_records[0], *(r.replace(finish_reason="length") for r in plain_records[1:])]
        write_records(tmp_path / "cut.jsonl", cut)
        assert "only requests that were cut" in refused("evaluate", "--cv", "5", "--data", tmp_path / "cut.jsonl")
