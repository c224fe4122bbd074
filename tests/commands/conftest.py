"""One trace, one training and the command line as a person types it: what the verbs about predictors share."""

import json
from pathlib import Path

import pytest

from laps_sd.cli import run
from laps_sd.data import RequestRecord, write_records
from laps_sd.data.prompts import generate_prompts


@pytest.fixture(scope="session")
def spec_records():
    """Sixty requests of a server that speculates; answers grow with their prompts."""
    rows = []
    for p in generate_prompts(60, 0):
        steps = 4 + len(p.prompt) % 150
        accept = tuple(1 + (len(p.prompt) + i) % 3 for i in range(steps))
        rows.append(
            RequestRecord(
                request_id=p.prompt_id, prompt=p.prompt, prompt_tokens=9, output_tokens=sum(accept) + 1,
                finish_reason="stop", model="small", category=p.category, group=p.group, draft="ngram",
                max_correct_drafts=3, verify_steps=steps, accept_lengths=accept,
                correct_drafts_histogram=tuple(accept.count(k + 1) for k in range(4)),
            )
        )  # fmt: skip
    return rows


@pytest.fixture(scope="session")
def spec_trace(spec_records, tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    write_records(path, spec_records)
    return path


@pytest.fixture(scope="session")
def plain_records(spec_records):
    """The same requests of a server that does not speculate."""
    nothing = dict.fromkeys(
        ("draft", "max_correct_drafts", "verify_steps", "accept_lengths", "correct_drafts_histogram")
    )
    return [r.replace(**nothing) for r in spec_records]


@pytest.fixture(scope="session")
def trained(spec_trace, tmp_path_factory):
    """Train once by the command line, in a working directory of its own."""
    folder = tmp_path_factory.mktemp("work")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.chdir(folder)
        code = run([
            "train", "--data", str(spec_trace), "--out", "bundle", "--register", "small", "--json", "train.json",
            "--experiment", "typed",
        ])  # fmt: skip
    assert code == 0
    return folder


@pytest.fixture
def typed(monkeypatch, capsys):
    """Type a command; its exit code, standard output and standard error."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def command(*arguments):
        code = run([str(a) for a in arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return command


@pytest.fixture
def at_work(trained, monkeypatch):
    """Stand in the folder with the bundle and its MLflow store."""
    monkeypatch.chdir(trained)
    return trained


@pytest.fixture
def refused(typed, tmp_path, monkeypatch):
    """Type a command in an empty folder; it must fail with one sentence and make nothing there, no store either."""
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)

    def command(*arguments, code=2):
        found, out, err = typed(*arguments)
        assert (found, out) == (code, "")
        assert err.startswith("laps-sd: ")
        assert err.count("\n") == 1
        assert list(empty.iterdir()) == []
        return err

    return command


@pytest.fixture(scope="session")
def figures_contract():
    """The keys that the contract promises of ``evaluate``, word by word."""
    steps = dict.fromkeys(("0", "4", "8", "16", "32"))
    later = dict.fromkeys(("0", "8", "16", "32"))
    length = dict.fromkeys((
        "kendall_tau", "spearman", "mae_tokens", "log_mae", "median_relative_error", "c_index", "pinball",
        "coverage_80", "width_80_tokens",
    ))  # fmt: skip
    return {
        "n": None,
        "n_censored": None,
        "length": length,
        "acceptance": {
            "n": None,
            "kendall_tau": None,
            "mape_accept_length": steps,
            "mape_accept_length_unseeded": steps,
            "mape_accept_length_raw": steps,
        },
        "execution_time": {
            "remaining_steps_median_relative_error": later,
            "remaining_steps_median_relative_error_known_length": later,
            "perceptible_share": later,
            "coverage_80": later,
        },
        "baselines": dict.fromkeys(("constant", "prompt_length", "category")),
        "predict_ms_p50": None,
        "predict_ms_p99": None,
    }


@pytest.fixture(scope="session")
def lacking():
    """Which keys of a contract are not in what was found; a part that is null needs no keys of its own."""

    def compare(contract, found, place=""):
        missing = [place + key for key in contract if key not in found]
        for key, part in contract.items():
            if part and found.get(key) is not None:
                missing += compare(part, found[key], f"{place}{key}.")
        return missing

    return compare


@pytest.fixture(scope="session")
def read_json():
    """Read a JSON file that holds no NaN and no Infinity."""

    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    return lambda path: json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=refuse)
