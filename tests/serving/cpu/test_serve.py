"""``laps-sd serve --cpu -- ARGS…`` becomes SGLang's own server, or says in one sentence why it cannot."""

import os
import socket
import sys
from pathlib import Path

import pytest

from laps_sd import cli
from laps_sd.serving.cpu import guard, launch, model


class Replaced(BaseException):
    """Stands for the end of this process that ``os.execve`` is."""

    def __init__(self, path: str, command: list[str], env: dict[str, str]) -> None:
        self.path, self.command, self.env = path, command, env


@pytest.fixture
def a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(model, "demo_model", lambda: tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def replace(monkeypatch: pytest.MonkeyPatch) -> None:
    def execve(path: str, command: list[str], env: dict[str, str]) -> None:
        raise Replaced(path, command, env)

    monkeypatch.setattr(os, "execve", execve)


def serve(*args: str) -> Replaced:
    with pytest.raises(Replaced) as replaced:
        cli.run(["serve", "--cpu", "--", *args])
    return replaced.value


def test_the_process_becomes_sglang_with_the_demo_model(a_model: Path) -> None:
    now = serve("--port", "31999", "--schedule-policy", "laps-sd")
    assert now.path == sys.executable
    assert now.command[:3] == [sys.executable, "-m", "sglang.launch_server"]
    assert now.command[3:9] == ["--model-path", str(a_model), "--port", "31999", "--schedule-policy", "laps-sd"]
    assert now.env[guard.ACTIVE] == "1"
    assert str(launch.STANDINS) in now.env["PYTHONPATH"]


def test_arguments_of_the_caller_win_over_the_defaults(a_model: Path) -> None:
    command = serve("--dtype", "bfloat16").command
    assert command.count("--dtype") == 1
    assert command[command.index("--dtype") + 1] == "bfloat16"


def test_help_and_a_config_file_are_left_to_sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "demo_model", lambda: pytest.fail("no model is needed"))
    assert "--help" in serve("--help").command
    assert "--model-path" not in serve("--config", "server.yaml").command


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["serve", "--", "--port", "1"], 2, "serve needs --cpu"),
        (["serve", "--cpu", "--", "--model-path", "/no/such/folder"], 2, "/no/such/folder does not exist"),
    ],
)
def test_wrong_usage_is_one_sentence(
    capsys: pytest.CaptureFixture[str], args: list[str], code: int, words: str
) -> None:
    assert cli.run(args) == code
    message = capsys.readouterr().err
    assert words in message
    assert message.count("\n") == 1


def test_another_sglang_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "version", lambda name: "0.5.22")
    assert cli.run(["serve", "--cpu"]) == 1
    assert "supports SGLang 0.5.23, but 0.5.22 is installed" in capsys.readouterr().err


def test_a_port_in_use_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert cli.run(["serve", "--cpu", "--", f"--port={port}"]) == 1
    assert f"port {port} is in use" in capsys.readouterr().err
