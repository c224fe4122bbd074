"""The wheel alone, in an environment that has nothing but what it declares: what an operator installs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from laps_sd.cli import VERBS
from laps_sd.data import builtin_trace, write_records
from laps_sd.predictors import fit_bundle
from laps_sd.serving.process.speculation import speculation_args

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def pip(*arguments: object, python: Path | str = sys.executable) -> None:
    command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def clean(tmp_path_factory) -> Path:
    """A Python that has the wheel and its declared dependencies, in the versions of requirements/lock.txt."""
    folder = tmp_path_factory.mktemp("clean")
    source = folder / "source"  # building leaves files behind
    wanted = (
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "laps_sd",
        "data",
        "scheduler",
        "predictors",
        "training",
        "serving",
    )
    source.mkdir()
    for name in wanted:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder / "wheel", source)
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    python = folder / "env" / "bin" / "python"
    (wheel,) = (folder / "wheel").glob("*.whl")
    pip("install", "-c", ROOT / "requirements" / "lock.txt", wheel, python=python)
    return python


@pytest.fixture
def laps_sd(clean, tmp_path):
    def run(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [str(clean.with_name("laps-sd")), *map(str, arguments)]
        done = subprocess.run(command, cwd=tmp_path, env={**env, "COLUMNS": "200"}, capture_output=True, text=True)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return run


def test_no_package_came_along_that_is_not_needed(clean):
    listed = subprocess.run([str(clean), "-m", "pip", "list", "--format", "json"], capture_output=True, text=True)
    names = {package["name"].lower() for package in json.loads(listed.stdout)}
    assert not names & {"torch", "triton", "sglang", "mlflow", "scikit-learn", "pandas", "plotly", "lifelines"}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_help(laps_sd, verb):
    assert "Usage:" in laps_sd(verb.removesuffix("_"), "--help").stdout


def test_what_needs_no_extra_works(laps_sd, tmp_path):
    laps_sd("data", "builtin", "--draft", "ngram", "--out", "trace.parquet")
    laps_sd("data", "describe", "trace.parquet")
    laps_sd("import", "records", "trace.parquet", "--out", "trace.jsonl.zst")
    laps_sd("config", "show")
    few = [record for record in builtin_trace("ngram") if not record.censored][:60]
    write_records(tmp_path / "few.jsonl", few)
    options = ["--seeds", 1, "--workers", 1, "--slots", 4, "--policies", "fcfs,laps-sd"]
    laps_sd("simulate", "--trace", "few.jsonl", "--predictions", "noise:0.5", *options, "--json", "out.json")
    fit_bundle(few).save(tmp_path / "bundle")
    laps_sd("predict", "--bundle", "bundle", "Name three rivers.")
    laps_sd("simulate", "--trace", "few.jsonl", "--bundle", "bundle", *options)


@pytest.mark.parametrize(
    ("arguments", "package"),
    [
        (["train", "--data", "few.jsonl", "--out", "bundle"], "scikit-learn"),
        (["evaluate", "--cv", "2", "--data", "few.jsonl"], "scikit-learn"),
        (["data", "describe", "few.jsonl", "--report", "page.html"], "plotly"),
        (["simulate", "--trace", "few.jsonl", "--predictions", "none", "--seeds", "1", "--report", "p.html"], "plotly"),
    ],
)
def test_what_needs_an_extra_names_it(laps_sd, tmp_path, arguments, package):
    write_records(tmp_path / "few.jsonl", builtin_trace("ngram")[:60])
    said = laps_sd(*arguments, code=1).stderr.strip().splitlines()[-1]
    assert f"this needs {package}, which is not installed: pip install 'laps-sd[train]'" in said


def test_doctor_says_that_there_is_no_sglang(laps_sd):
    shown = laps_sd("doctor", code=1).stdout
    assert "NOT OK" in shown
    assert "sglang" in shown.lower()


@pytest.mark.server
def test_a_running_server_is_measured_and_examined_from_there(laps_sd, server_factory):
    server = server_factory([*speculation_args("ngram"), "--max-running-requests", "2", "--enable-metrics"])
    asked = ["--requests", 4, "--max-new-tokens", 8, "--out", "bench"]
    shown = laps_sd("bench", "--url", server.url, *asked, "--json", "bench.json").stdout
    assert "fcfs" in shown
    assert "schedules with fcfs" in laps_sd("doctor", "--url", server.url, code=1).stdout
