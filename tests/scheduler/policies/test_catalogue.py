"""Policies are found by name, those of other installed packages too."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from laps_sd.data.builtin import builtin_path
from laps_sd.extensions import POLICIES
from laps_sd.scheduler import Settings, make_policy, policy_class, policy_names
from laps_sd.scheduler.settings import PRESETS

MODULE = '''
from laps_sd.scheduler import Policy


class LongestPrompt(Policy):
    """Longest prompt first."""

    name = "longest-prompt"

    def place(self, state):
        state.key = (-state.priority, 0, -float(state.prompt_tokens), state.arrival)


not_a_policy = 7
'''
ENTRY_POINTS = """[laps_sd.policies]
longest-prompt = extra_policies:LongestPrompt
seven = extra_policies:not_a_policy
gone = extra_policies_that_are_gone:Policy
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Folder that holds an installed package which registers a policy."""
    (tmp_path / "extra_policies.py").write_text(MODULE)
    info = tmp_path / "extra_policies-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: extra-policies\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    return tmp_path


def run(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(installed), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, *arguments], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )


@pytest.mark.parametrize("name", POLICIES.names())
def test_a_policy_is_registered_under_its_own_name(name):
    assert policy_class(name).name == name
    assert make_policy(name).name == name


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_laps_sd_with_other_settings(preset):
    policy = make_policy(f"laps-sd:{preset}", Settings(margin=3.0))
    assert policy.name == "laps-sd"
    assert all(getattr(policy.settings, key) == value for key, value in PRESETS[preset].items())
    assert policy.settings.margin == PRESETS[preset].get("margin", 3.0)


@pytest.mark.parametrize("name", ["", "lps-sd", "laps-sd:nothing", "fcfs:paper", ":paper"])
def test_an_unknown_name_is_refused_with_those_that_are_known(name):
    with pytest.raises(ValueError, match=r"unknown policy .*laps-sd:paper"):
        make_policy(name)


def test_only_the_references_are_clairvoyant_and_say_so():
    assert [name for name in POLICIES.names() if policy_class(name).clairvoyant] == ["oracle-srpt", "oracle-ride"]


def test_a_policy_says_whether_it_needs_predictions():
    assert {name for name in policy_names() if policy_class(name).uses_predictions} == {
        "hrrn-predicted", "boost", "sjf-predicted", "gittins", "laps-sd", "oracle-ride",
        *(f"laps-sd:{preset}" for preset in PRESETS),
    }  # fmt: skip


def test_a_policy_of_another_package_is_replayed_in_worker_processes(installed: Path):
    out = installed / "out.json"
    done = run(
        installed, "-m", "laps_sd", "simulate", "--trace", str(builtin_path("ngram")), "--requests", "20",
        "--seeds", "2",
        "--slots", "2", "--workers", "2", "--policies", "fcfs,longest-prompt", "--json", str(out),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())["policies"]
    assert found["longest-prompt"]["finished"] == found["fcfs"]["finished"] > 0
    assert found["longest-prompt"]["latency_s"]["mean"] != found["fcfs"]["latency_s"]["mean"]


def test_the_help_lists_it(installed: Path):
    assert "longest-prompt" in run(installed, "-m", "laps_sd", "simulate", "--help").stdout


@pytest.mark.parametrize(("name", "why"), [("seven", "no class derived from Policy"), ("gone", "cannot be imported")])
def test_what_another_package_registers_wrongly_is_refused_in_a_sentence(installed: Path, name: str, why: str):
    code = f"from laps_sd.scheduler import make_policy\ntry: make_policy({name!r})\nexcept ValueError as e: print(e)"
    done = run(installed, "-c", code)
    assert why in done.stdout, done.stderr
    assert len(done.stdout.splitlines()) == 1


def test_a_mistyped_policy_or_preset_is_answered_with_the_one_that_is_like_it():
    for wrong, meant in (("sjf-predict", "sjf-predicted"), ("laps-sd:papr", "laps-sd:paper")):
        with pytest.raises(ValueError, match=f"did you mean '{meant}'"):
            policy_class(wrong)
