"""Another package's policy, predictors, feature set and importer: one file each, found by name in every command.

The package is tests/extension_package/, installed as anyone would install it; CONTRIBUTING.md shows its files.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from laps_sd.data import builtin_trace, read_records, write_records

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tests" / "extension_package"


@pytest.fixture
def laps_sd(with_extension, tmp_path):
    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "laps_sd", *map(str, arguments)]
        done = subprocess.run(
            command,
            env={**os.environ, **with_extension, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done

    return run


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    write_records(path, [record for record in builtin_trace("ngram") if not record.censored][:80])
    return path


@pytest.mark.parametrize(
    ("verb", "names"),
    [
        ("simulate", ["smallest-prompt"]),
        ("train", ["by_words", "fixed", "sizes"]),
        ("evaluate", ["by_words", "fixed", "sizes"]),
        ("import", ["plain-log"]),
    ],
)
def test_help_lists_what_the_package_adds(laps_sd, verb, names):
    shown = laps_sd(verb, "--help").stdout
    assert [name for name in names if name not in shown] == []


def test_its_policy_is_simulated(laps_sd, trace, tmp_path):
    options = ["--slots", 2, "--seeds", 1, "--requests", 40, "--load", 0.9, "--predictions", "none"]
    laps_sd("simulate", "--trace", trace, "--policies", "fcfs,smallest-prompt", *options, "--json", "out.json")
    policies = json.loads((tmp_path / "out.json").read_text())["policies"]
    assert policies["smallest-prompt"]["latency_s"]["mean"] != policies["fcfs"]["latency_s"]["mean"]


def test_its_predictors_are_trained_loaded_and_evaluated(laps_sd, trace, tmp_path):
    laps_sd("train", "--data", trace, "--out", "bundle", "--predictor", "by_words", "--acceptance", "fixed")
    short, long = (
        json.loads(laps_sd("predict", "--bundle", "bundle", "--json", prompt).stdout)
        for prompt in ("Why?", "word " * 200)
    )
    assert short["length_mean"] != long["length_mean"]
    assert short["accept_length"] == long["accept_length"] > 1
    laps_sd("evaluate", "--bundle", "bundle", "--data", trace, "--no-mlflow", "--json", "figures.json")
    assert json.loads((tmp_path / "figures.json").read_text())["length"]["kendall_tau"] is not None


def test_its_features_feed_the_default_predictor(laps_sd, trace):
    laps_sd("train", "--data", trace, "--out", "bundle", "--features", "sizes")
    assert json.loads(laps_sd("predict", "--bundle", "bundle", "--json", "Why?").stdout)["length_mean"] > 1


def test_its_importer_reads_files(laps_sd, tmp_path):
    (tmp_path / "server.log").write_text('{"in": 3, "out": 4}\n{"in": 5, "out": 9}\n')
    laps_sd("import", "plain-log", "server.log", "--max-new-tokens", 8, "--out", "trace.parquet")
    first, second = read_records(tmp_path / "trace.parquet")
    assert (first.request_id, first.prompt_tokens, first.output_tokens) == ("server/1", 3, 4)
    assert (second.output_tokens, second.censored) == (8, True)
    assert "plain-log" in laps_sd("import", "--formats").stdout


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("[!_]*.*")), ids=lambda path: path.name)
def test_the_guide_shows_the_package_as_it_is(path):
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    if "__pycache__" not in path.parts:
        assert path.read_text(encoding="utf-8") in guide, f"{path.name} in CONTRIBUTING.md differs from the file"
