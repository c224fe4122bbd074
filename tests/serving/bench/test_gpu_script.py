"""``benchmarks/gpu.sh`` has never run on a GPU here: at least the program understands every command in it."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest
import typer

from laps_sd.cli import app

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "gpu.sh"


def commands(*arguments: str, **env: str) -> list[list[str]]:
    """The command lines that the script would run."""
    done = subprocess.run(
        ["bash", str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "DRY": "1", **env},
    )
    return [shlex.split(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("dummy", ["", "2.5"])
def test_every_command_is_understood(tmp_path: Path, dummy: str) -> None:
    group = typer.main.get_command(app)
    lines = commands("model", "draft", "head", OUT=str(tmp_path / "out"), DUMMY=dummy)
    for program, verb, *rest in lines:
        assert program == "laps-sd"
        command = group.commands[verb]  # type: ignore[attr-defined]
        if verb == "data":
            command, rest = command.commands[rest[0]], rest[1:]
        command.make_context(verb, rest)  # raises what a user would be told
    assert sum(line[1] == "bench" for line in lines) == 9
    assert any("train" in line for line in lines) == (dummy == "")
    said = [line[line.index("--server-args") + 1] for line in lines if line[1] == "bench"]
    assert all(("--load-format dummy" in words) == (dummy != "") for words in said)
    assert sum("EAGLE3" in words for words in said) == 2
    assert sum("--disable-overlap-schedule" in words for words in said) == 4


def test_without_a_model_it_says_how_it_is_called() -> None:
    done = subprocess.run(["bash", str(SCRIPT)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "usage" in done.stderr
