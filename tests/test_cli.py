"""Exit codes and messages of the command line, and what each verb promises."""

import pytest
import typer

import laps_sd
from laps_sd import cli
from laps_sd.errors import InputError, WorkError


def raising(error: BaseException):
    def command(*_: object, **__: object) -> int:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InputError("records.jsonl line 3: prompt_tokens must be at least 0"), 2, "records.jsonl line 3"),
        (WorkError("the server ended at start: out of memory"), 1, "out of memory"),
        (FileNotFoundError(2, "No such file or directory", "x.json"), 1, "x.json: No such file or directory"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ZeroDivisionError("division by zero"), 1, "unexpected ZeroDivisionError"),
        (
            ModuleNotFoundError("no", name="plotly.io"),
            1,
            "needs plotly, which is not installed",
        ),
    ],
)
def test_a_failure_is_one_sentence_and_an_exit_code(monkeypatch, capsys, error, code, said):
    monkeypatch.setattr(cli, "app", raising(error))
    assert cli.run([]) == code
    shown = capsys.readouterr()
    assert said in shown.err
    assert len(shown.err.strip().splitlines()) == 1
    assert shown.out == ""


def test_an_interrupted_verb_says_so(monkeypatch, capsys):
    monkeypatch.setattr("laps_sd.training.load_bundle", raising(KeyboardInterrupt()))
    assert cli.run(["predict", "--bundle", "any", "hello"]) == 130
    assert capsys.readouterr().err == "laps-sd: interrupted; what was started has been stopped\n"


def test_debug_adds_the_traceback(monkeypatch, capsys):
    monkeypatch.setattr(cli, "app", raising(WorkError("no")))
    monkeypatch.setenv("LAPS_SD_DEBUG", "1")
    assert cli.run([]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["nonsense"], ["--nonsense"], ["simulate", "--slots", "many"]])
def test_wrong_usage_exits_with_2(argv):
    assert cli.run(argv) == 2


def test_version(capsys):
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"laps-sd {laps_sd.__version__}"


VERBS = [
    "demo",
    "import",
    "collect",
    "train",
    "evaluate",
    "predict",
    "simulate",
    "bench",
    "serve",
    "doctor",
    "top",
    "explain",
]


@pytest.mark.parametrize("verb", VERBS)
def test_every_promised_verb_has_a_help(verb, capsys):
    assert cli.run([verb, "--help"]) == 0
    assert "Usage:" in capsys.readouterr().out


def test_no_argument_shows_the_help(capsys):
    assert cli.run([]) in (0, 2)
    assert "demo" in "".join(capsys.readouterr())


def test_every_public_name_can_be_imported():
    for name in laps_sd.__all__:
        assert getattr(laps_sd, name) is not None


def test_the_public_surface_is_pinned():
    assert laps_sd.__all__ == [
        "__version__",
        "InputError",
        "LapsError",
        "Prediction",
        "PredictorBundle",
        "RequestRecord",
        "SurvivalCurve",
        "WorkError",
        "canonical_prompt",
        "read_records",
        "simulate",
        "write_records",
    ]


def test_the_app_is_typer():
    assert isinstance(cli.app, typer.Typer)


def test_quiet_silences_remarks_and_no_failure(capsys):
    from laps_sd.commands._console import say, stderr

    def remark():
        say("a remark")

    cli.app.command("remark-of-a-test")(remark)
    try:
        assert cli.run(["--quiet", "remark-of-a-test"]) == 0
        assert capsys.readouterr() == ("", "")
        assert not stderr.quiet, "the next command of the process speaks again"
        assert cli.run(["--quiet", "explain", "nowhere.jsonl", "x"]) == 2
        assert "nowhere.jsonl" in capsys.readouterr().err
    finally:
        cli.app.registered_commands.pop()
