"""``laps-sd train``, ``evaluate`` and ``predict`` as a person types them."""

import io
import json

import pytest

from laps_sd.cli import run
from laps_sd.data import RequestRecord, write_records
from laps_sd.data.prompts import generate_prompts


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """Sixty requests whose answers grow with their prompts."""
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    rows = [
        RequestRecord(
            request_id=p.prompt_id, prompt=p.prompt, prompt_tokens=9, output_tokens=5 + len(p.prompt) % 300,
            finish_reason="stop", model="small", category=p.category, group=p.group,
        )
        for p in generate_prompts(60, 0)
    ]  # fmt: skip
    write_records(path, rows)
    return path


@pytest.fixture(scope="module")
def trained(trace, tmp_path_factory):
    """Train once by the command line, in a working directory of its own."""
    folder = tmp_path_factory.mktemp("work")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.chdir(folder)
        code = run([
            "train", "--data", str(trace), "--out", "bundle", "--register", "small", "--json", "train.json",
            "--experiment", "typed",
        ])  # fmt: skip
    assert code == 0
    return folder


@pytest.fixture
def typed(trained, monkeypatch, capsys):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(trained)

    def command(*arguments):
        code = run([str(a) for a in arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return command


def test_training_writes_bundle_store_and_json(trained):
    result = json.loads((trained / "train.json").read_text())
    assert result["bundle"] == "bundle"
    assert result["experiment"] == "typed"
    assert result["registered"] == "models:/small@champion"
    assert result["metrics"]["length"]["n"] > 0
    assert (trained / "bundle" / "manifest.json").is_file()
    assert (trained / "mlflow.db").is_file()
    assert (trained / "mlartifacts").is_dir()


def test_evaluation_prints_baselines_and_writes_json_and_report(typed, trace, trained):
    code, out, _ = typed(
        "evaluate", "--bundle", "models:/small@champion", "--data", trace, "--json", "e.json", "--report", "e.html"
    )
    assert code == 0
    assert all(name in out for name in ("predicted", "constant", "category"))
    assert "one prediction took" in out
    figures = json.loads((trained / "e.json").read_text())
    assert figures["n"] == 60
    assert {"kendall_tau", "spearman", "mae_tokens", "log_mae", "median_relative_error", "c_index", "pinball",
            "coverage_80", "width_80_tokens"} <= set(figures["length"])  # fmt: skip
    assert {"constant", "prompt_length", "category"} <= set(figures["baselines"])
    assert figures["acceptance"] is None
    assert figures["execution_time"] is None
    assert "Prediction accuracy" in (trained / "e.html").read_text()


def test_cross_validation_takes_several_traces(typed, trace, trained):
    code, out, _ = typed(
        "evaluate",
        "--cv",
        "2",
        "--predictor",
        "constant",
        "--data",
        trace,
        "--data",
        trace,
        "--no-mlflow",
        "--json",
        "c.json",
    )
    assert code == 0
    assert "120 requests" in out
    assert json.loads((trained / "c.json").read_text())["n"] == 120


def test_a_trace_may_follow_the_first(typed, trace):
    code, out, _ = typed("evaluate", "--cv", "2", "--predictor", "constant", "--no-mlflow", "--data", trace, trace)
    assert code == 0
    assert "120 requests" in out


def test_one_prompt_is_predicted(typed):
    code, out, _ = typed("predict", "--bundle", "bundle", "Write a story.")
    assert code == 0
    assert "Write a story." in out.replace("\n", " ") or "Write a" in out


def test_a_prompt_may_come_from_standard_input_and_leave_as_json(typed, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("Write a story."))
    code, out, _ = typed("predict", "--bundle", "bundle", "--json")
    assert code == 0
    row = json.loads(out)
    assert row["length_p10"] <= row["length_p50"] <= row["length_p90"]
    assert row["survival"][0] == 1.0
    code, again, _ = typed("predict", "--bundle", "bundle", "--json", "Write a story.")
    assert json.loads(again) == row


def test_a_file_of_prompts_is_predicted_line_by_line(typed, trace, trained):
    code, out, _ = typed("predict", "--bundle", "bundle", "--json", "--file", trace)
    assert code == 0
    assert len(out.splitlines()) == 60
    (trained / "bad.jsonl").write_text('{"prompt": "fine"}\n{"text": 3}\n')
    code, _, err = typed("predict", "--bundle", "bundle", "--file", "bad.jsonl")
    assert code == 2
    assert "line 2" in err


def test_a_prompt_is_printed_as_it_is_and_not_as_markup(typed):
    code, out, err = typed("predict", "--bundle", "bundle", "[/b] what is half a pair \udc80?")
    assert (code, err) == (0, "")
    assert "[/b]" in out


def test_standard_input_that_is_no_text_is_refused(typed, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9"), encoding="utf-8"))
    code, _, err = typed("predict", "--bundle", "bundle")
    assert (code, err) == (2, "laps-sd: standard input is not text in UTF-8 (unexpected end of data at byte 3)\n")


def test_a_line_separator_inside_a_prompt_ends_no_line(typed, trained):
    (trained / "odd.jsonl").write_text('{"prompt": "one\u2028two"}\n', encoding="utf-8")
    code, out, _ = typed("predict", "--bundle", "bundle", "--file", "odd.jsonl", "--json")
    assert code == 0
    assert len(out.splitlines()) == 1


@pytest.mark.parametrize(
    "field", ['"prompt_tokens": "9"', '"temperature": -1', '"model": 3', '"turns": [1]', '"prompt_tokens": 1e999']
)
def test_a_wrong_field_beside_a_prompt_is_named(typed, trained, field):
    (trained / "odd.jsonl").write_text(f'{{"prompt": "hello", {field}}}\n')
    code, _, err = typed("predict", "--bundle", "bundle", "--file", "odd.jsonl")
    assert code == 2
    assert f"line 1: {field[1:].split(chr(34))[0]}: expected" in err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["predict", "--bundle", "nowhere", "hello"], "no bundle at nowhere"),
        (["predict", "--bundle", "models:/nobody@champion", "hello"], "no model models:/nobody@champion"),
        (["evaluate", "--data", "none.jsonl"], "either a bundle"),
        (["evaluate", "--cv", "2", "--data", "none.jsonl"], "none.jsonl"),
        (["train", "--data", "none.jsonl", "--out", "other"], "none.jsonl"),
        (["train", "--data", "none.jsonl", "--out", "other", "--json", "."], "is a folder"),
        (["train", "--data", "none.jsonl", "--out", "other", "--json", "other/train.json"], "lies in the bundle"),
        (["train", "--data", "train.json", "--out", "other", "--json", "train.json"], "is read here"),
        (["train", "--data", "none.jsonl", "--out", "other", "--seed", "-1"], "--seed"),
        (["evaluate", "--cv", "2", "--data", "none.jsonl", "--json", "a", "--report", "a"], "named for two results"),
    ],
)
def test_wrong_usage_exits_with_2_and_one_sentence(typed, trained, arguments, reason):
    code, out, err = typed(*arguments)
    assert code == 2
    assert reason in err
    assert "Traceback" not in err
    assert not (trained / "other").exists()
    assert out == ""
