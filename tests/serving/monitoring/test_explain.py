"""`laps-sd explain`: why one recorded request waited."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from laps_sd.cli import app, run
from laps_sd.data import RequestRecord, read_records, write_records
from laps_sd.errors import InputError
from laps_sd.serving.monitoring.explain import explain, sentences


def record(name: str, came: float, waited: float, took: float, tokens: int = 10, **story: Any) -> RequestRecord:
    return RequestRecord(
        request_id=name, prompt_tokens=5, output_tokens=tokens, finish_reason="stop", arrival_s=came, queue_s=waited,
        e2e_s=took, extra={"laps_sd": story} if story else {},
    )  # fmt: skip


# One slot: "first" holds it, "short" passes "long", "early" had come before it, "urgent" has a higher priority.
TRACE = [
    record("first", 0.0, 0.0, 5.0, 50, predicted_tokens=40.0, priority=0, slots=[[0.0, None]]),
    record("early", 0.5, 4.5, 5.5, 10, predicted_tokens=300.0, priority=0, slots=[[4.5, None]]),
    record(
        "long", 1.0, 7.0, 15.0, 100, predicted_tokens=200.0, priority=0, preemptions=1,
        slots=[[7.0, 9.0], [11.0, None]],
    ),
    record("short", 2.0, 4.0, 5.0, 12, predicted_tokens=9.0, priority=0, slots=[[4.0, None]]),
    record("urgent", 3.0, 4.0, 5.0, 12, predicted_tokens=900.0, priority=2, slots=[[4.0, None]]),
    record("late", 9.0, 1.5, 3.0, 4, predicted_tokens=5.0, priority=0, slots=[[1.5, None]]),
]  # fmt: skip


def test_it_names_who_held_the_slots_and_who_went_before_and_why() -> None:
    found = explain(TRACE, "long")
    assert [story.request_id for story in found.holding] == ["first"]
    assert [(one.story.request_id, one.why) for one in found.before] == [
        ("early", "it had come earlier"),
        ("short", "it was predicted to be shorter"),
        ("urgent", "its priority was higher"),
    ]
    ((lost, back, meanwhile),) = found.preempted
    assert (lost, back, [one.story.request_id for one in meanwhile]) == (10.0, 12.0, ["late"])
    said = "\n".join(sentences(found))
    for text in (
        "long came at 1.00 s, waited 7.00 s for a slot", "It produced 100 tokens; predicted were 200.",
        "1 request held a slot: first", "3 requests got a slot while it waited:",
        "short (5.00 s after it came): it was predicted to be shorter; predicted were 9, 12 tokens in the end",
        "It lost its slot 9.00 s after it came, for 2.00 s, in which 1 request got one:",
    ):  # fmt: skip
        assert text in said


def test_whoever_waited_for_nobody_is_told_so() -> None:
    found = explain(TRACE, "first")
    assert (found.holding, found.before, found.preempted) == ((), (), ())
    assert "Nobody got a slot between its arrival and its own." in list(sentences(found))


def test_a_record_without_our_column_is_explained_by_its_times() -> None:
    old = [record("a", 0.0, 0.0, 5.0), record("b", 1.0, 4.0, 6.0), record("c", 2.0, 2.5, 4.0)]
    found = explain(old, "b")
    assert [story.request_id for story in found.holding] == ["a"]
    assert [one.why for one in found.before] == ["it came later, and what was predicted is not known of both"]
    assert "nothing is recorded of a prediction" in "\n".join(sentences(found))


@pytest.mark.parametrize("slots", [7, [[1.0]], [["a", None]], [[None, None]]])
def test_slots_that_are_none_are_not_believed(slots: Any) -> None:
    found = explain([record("a", 1.0, 2.0, 5.0, slots=slots)], "a")
    assert found.request.slots == ((3.0, 6.0),)


def test_an_unknown_request_and_one_without_times_are_refused() -> None:
    with pytest.raises(InputError, match="there is no request 'nobody'"):
        explain(TRACE, "nobody")
    bare = RequestRecord(request_id="x", prompt_tokens=1, output_tokens=1, finish_reason="stop")
    with pytest.raises(InputError, match=r"does not say when 'x' arrived.*record.path"):
        explain([bare], "x")


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.parquet"])
def test_the_command_reads_what_was_written(tmp_path: Path, name: str) -> None:
    write_records(tmp_path / name, TRACE)
    assert explain(read_records(tmp_path / name), "long") == explain(TRACE, "long")
    command = ["explain", str(tmp_path / name), "long", "--json", str(tmp_path / "why.json")]
    result = CliRunner().invoke(app, command, standalone_mode=False)
    assert "3 requests got a slot while it waited:" in result.stdout
    written = json.loads((tmp_path / "why.json").read_text())
    assert [one["story"]["request_id"] for one in written["before"]] == ["early", "short", "urgent"]
    assert run(["explain", str(tmp_path / name), "nobody"]) == 2
