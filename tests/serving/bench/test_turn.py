"""Turns are kept one by one, whole or not at all, and belong to one comparison."""

from pathlib import Path

import pytest

from laps_sd.errors import InputError
from laps_sd.serving.bench.load import LoadResult
from laps_sd.serving.bench.turn import Turn, Turns

PLAN = {"seed": 1, "slots": 4}


def turn(policy: str = "laps-sd:paper", number: int = 0) -> Turn:
    done = LoadResult("a", 0.5, 1.0, 2.0, [3, 4], {"laps_sd": {"preemptions": 1}})
    return Turn(policy, number, [done, LoadResult("b", 0.7, error="no answer")], (1.0, 9.0), Path("rounds.jsonl"))


def test_a_turn_comes_back_as_it_was_kept(tmp_path: Path) -> None:
    Turns(tmp_path / "turns", PLAN, resume=False).keep(turn())
    found = Turns(tmp_path / "turns", PLAN, resume=True).get("laps-sd:paper", 0)
    assert found == turn()
    assert found is not None
    assert found.log == Path("rounds.jsonl")


def test_without_resume_one_begins_anew(tmp_path: Path) -> None:
    Turns(tmp_path, PLAN, resume=False).keep(turn())
    kept = Turns(tmp_path, PLAN, resume=False)
    assert kept.get("laps-sd:paper", 0) is None
    assert list(tmp_path.iterdir()) == []


def test_turns_of_another_comparison_are_refused(tmp_path: Path) -> None:
    Turns(tmp_path, PLAN, resume=False).keep(turn())
    with pytest.raises(InputError, match=r"another comparison \(slots differ\)"):
        Turns(tmp_path, {**PLAN, "slots": 8}, resume=True)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff"])
def test_what_is_no_turn_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "0-fcfs.json").write_bytes(content)
    with pytest.raises(InputError, match="is no turn of a comparison"):
        Turns(tmp_path, PLAN, resume=True)


def test_the_requests_that_were_sent_first_warm_up(tmp_path: Path) -> None:
    results = [LoadResult(name, sent, sent, sent + 1) for name, sent in (("late", 9.0), ("first", 0.0), ("next", 1.0))]
    assert [r.request_id for r in Turn("fcfs", 0, results).after(1).results] == ["late", "next"]
    assert Turn("fcfs", 0, results).after(0).results == results
