"""``laps-sd predict`` as a person types it."""

import io
import json
import os
import threading

import pytest

pytestmark = pytest.mark.usefixtures("at_work")

SUMMARY = {"length_mean", "length_p50", "length_p10", "length_p90", "accept_length", "accept_strength", "verify_steps"}


@pytest.fixture
def predict(typed):
    return lambda *arguments: typed("predict", "--bundle", "bundle", *arguments)


@pytest.fixture
def spoken(monkeypatch):
    """Say something on standard input."""
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_one_prompt_is_predicted(predict):
    code, out, _ = predict("Write a story.")
    assert code == 0
    assert "Write a story." in out.replace("\n", " ") or "Write a" in out


def test_a_prompt_may_come_from_standard_input_and_leave_as_json(predict, spoken):
    spoken("Write a story.")
    code, out, _ = predict("--json")
    assert code == 0
    row = json.loads(out)
    assert set(row) >= SUMMARY | {"edges", "survival"}
    assert row["length_p10"] <= row["length_p50"] <= row["length_p90"]
    assert row["survival"][0] == 1.0
    code, again, _ = predict("--json", "Write a story.")
    assert json.loads(again) == row


def test_nothing_that_is_said_of_a_length_exceeds_its_limit(predict):
    free, capped = (
        json.loads(predict("--json", *limit, "Write a story.")[1]) for limit in ((), ("--max-new-tokens", "5"))
    )
    lengths = ("length_mean", "length_p10", "length_p50", "length_p90")
    assert all(capped[name] <= 5 for name in lengths)
    assert max(free[name] for name in lengths) > 5, "without a limit it is longer"
    assert capped["verify_steps"] == pytest.approx(capped["length_mean"] / capped["accept_length"])
    assert capped["survival"] == pytest.approx(free["survival"], abs=0.2), "the curve is that without a limit"


def test_a_bundle_of_mlflow_leaves_no_copy_behind(typed, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code, out, _ = typed("predict", "--bundle", "models:/small@champion", "--json", "hello")
    assert (code, len(out.splitlines())) == (0, 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", " \n", "a\0b", "word " * 200_000, "a" * 1_000_000, "😀" * 200_000])
def test_any_text_is_a_prompt(predict, spoken, text):
    spoken(text)
    code, out, err = predict("--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["length_mean"] > 0


class TestTables:
    """What a terminal is given."""

    def test_a_prompt_is_no_markup(self, predict):
        code, out, err = predict("[/b] what is half a pair \udc80?")
        assert (code, err) == (0, "")
        assert "[/b]" in out

    def test_a_prompt_gives_no_orders_to_the_terminal(self, predict):
        code, out, _ = predict("\x1b[31mred\x07")
        assert code == 0
        assert "\x1b[31m" not in out
        assert "\x07" not in out
        assert "red" in out


class TestFiles:
    def test_each_row_of_a_trace_is_predicted(self, predict, spec_trace):
        code, out, _ = predict("--json", "--file", spec_trace)
        assert code == 0
        assert len(out.splitlines()) == 60

    def test_rows_need_no_more_than_a_prompt_in_lines_or_in_an_array(self, predict, tmp_path):
        (tmp_path / "odd.jsonl").write_text('{"prompt": "one\u2028two"}\n\n', encoding="utf-8")
        (tmp_path / "array.json").write_text('[{"prompt": "one\u2028two"}]', encoding="utf-8")
        (code, out, _), other = (predict("--file", tmp_path / n, "--json") for n in ("odd.jsonl", "array.json"))
        assert code == 0
        assert len(out.splitlines()) == 1  # a line separator inside a prompt ends no line
        assert other == (0, out, "")

    def test_a_pipe_is_a_file(self, predict, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=('{"prompt": "hello"}\n',))
        writer.start()
        code, out, _ = predict("--file", tmp_path / "pipe", "--json")
        writer.join()
        assert (code, len(out.splitlines())) == (0, 1)

    def test_options_hold_for_every_row(self, predict, tmp_path):
        (tmp_path / "one.jsonl").write_text('{"prompt": "hello", "model": "other"}\n')
        _, alone, _ = predict("hello", "--model", "small", "--temperature", "0.5", "--json")
        _, of_file, _ = predict("--file", tmp_path / "one.jsonl", "--model", "small", "--temperature", "0.5", "--json")
        assert of_file == alone

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b'{"prompt": "fine"}\n{"text": 3}\n', "line 2: expected an object with a text in `prompt`"),
            (b'{"prompt": "fine"}\n{"prompt"', "line 2: expected one JSON object"),
            (b'{"prompt": "caf\xe9"}\n', "(expected JSON lines in UTF-8)"),
            (b'{"prompt": ' + b"[" * 100_000, "line 1: expected one JSON object"),
            (b'{"prompt": "\\ud800"}\n', "line 1: expected one JSON object, a text holds a lone surrogate"),
            (b'{"prompt": "hello", "prompt_tokens": "9"}\n', "line 1: prompt_tokens: expected a number, 0 or more"),
            (b'{"prompt": "hello", "temperature": -1}\n', "line 1: temperature: expected a number"),
            (b'{"prompt": "hello", "temperature": NaN}\n', "line 1: temperature: expected a number"),
            (b'{"prompt": "hello", "model": 3}\n', "line 1: model: expected text, got 3"),
            (b'{"prompt": "hello", "turns": [1]}\n', "line 1: turns: expected a number"),
            (b'{"prompt": "hello", "prompt_tokens": 1e999}\n', "line 1: prompt_tokens: expected a number"),
            (b"", "the file is empty"),
            (b"\n \n", "expected at least one row with a prompt"),
        ],
    )
    def test_a_bad_row_is_named_by_file_and_line(self, predict, tmp_path, content, reason):
        (tmp_path / "bad.jsonl").write_bytes(content)
        code, out, err = predict("--file", tmp_path / "bad.jsonl")
        assert (code, out) == (2, "")
        assert "bad.jsonl" in err
        assert reason in err
        assert err.count("\n") == 1


def test_standard_input_that_is_no_text_is_refused(predict, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9"), encoding="utf-8"))
    code, _, err = predict()
    assert (code, err) == (2, "laps-sd: standard input is not text in UTF-8 (unexpected end of data at byte 3)\n")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--bundle", "nowhere", "hello"], "no bundle at nowhere"),
        (["--bundle", "models:/nobody@champion", "hello"], "no model models:/nobody@champion"),
        (["--bundle", "bundle", "hello", "--file", "train.json"], "give a prompt or --file, not both"),
        (["--bundle", "bundle", "hello", "--temperature", "inf"], "--temperature"),
        (["--bundle", "bundle", "hello", "--temperature", "nan"], "--temperature"),
        (["--bundle", "bundle", "hello", "--max-new-tokens", "9" * 30], "--max-new-tokens"),
    ],
)
def test_wrong_usage_exits_with_2_and_one_sentence(typed, arguments, reason):
    code, out, err = typed("predict", *arguments)
    assert (code, out) == (2, "")
    assert reason in err
    assert err.count("\n") == 1
