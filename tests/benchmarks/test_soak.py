"""What counts as lost, and what as wrong."""

from pathlib import Path
from typing import Any

import pytest
from soak import FAULTS, Check, Run, draw_faults, flat, judge, objects, run_soak
from soak_client import Ending, Manner, Visit
from soak_inside import Census, Fault
from soak_questions import Question


def answer(*ids: int, end: str = "stop") -> dict[str, Any]:
    return {"text": str(ids), "ids": list(ids), "end": end}


RIGHT = Ending("answered", [answer(1, 2, 3)])


def judged(
    ending: Ending, manner: Manner = "waits", *, right: Ending = RIGHT, setting: str = "plain", feature: str = "plain"
) -> tuple[int, int]:
    question = Question(5, feature, "generate", "Why?", {})
    run = Run(setting, None, [Visit(0, question, manner, None, None, False, 0.0, 0)], [ending])
    judge(run, {5: right})
    assert run.good == (not run.lost and not run.wrong)
    return len(run.lost), len(run.wrong)


def test_the_right_answer_is_neither() -> None:
    assert judged(Ending("answered", [answer(1, 2, 3)], preemptions=4)) == (0, 0)


@pytest.mark.parametrize("how", ["failed", "aborted", "refused", "left"])
def test_who_waited_and_got_no_answer_lost_it(how: Any) -> None:
    assert judged(Ending(how)) == (1, 0)


def test_other_tokens_are_wrong_and_another_end_is_too() -> None:
    assert judged(Ending("answered", [answer(1, 2, 4)])) == (0, 1)
    assert judged(Ending("answered", [answer(1, 2, 3, end="length")])) == (0, 1)
    assert judged(Ending("answered", [answer(1, 2, 3)] * 2)) == (0, 1)


def test_who_aborted_or_left_may_get_nothing_or_a_beginning() -> None:
    for manner in ("aborts", "gives up", "hangs up"):
        for ending in (Ending("aborted"), Ending("left"), Ending("aborted", [answer(1, 2, end="abort")]), RIGHT):
            assert judged(ending, manner) == (0, 0)  # type: ignore[arg-type]
    assert judged(Ending("aborted", [answer(1, 9, end="abort")]), "aborts") == (0, 1)
    assert judged(Ending("failed"), "aborts") == (1, 0)


def test_an_aborted_answer_may_go_on_to_the_end_of_its_verify_step() -> None:
    """SGLang looks for no stop string in a step of a request that is being aborted."""
    assert judged(Ending("aborted", [answer(1, 2, 3, 4, 5, end="abort")]), "aborts") == (0, 0)
    assert judged(Ending("aborted", [answer(1, 2, 4, 4, 5, end="abort")]), "aborts") == (0, 1)
    assert judged(Ending("aborted", [answer(*range(1, 20), end="abort")]), "aborts") == (0, 1)


def test_who_is_aborted_during_the_compilation_of_its_grammar_gets_one_token_of_another_prompt() -> None:
    for feature in ("regex", "schema"):
        assert judged(Ending("aborted", [answer(9, end="abort")]), "aborts", feature=feature) == (0, 0)
        assert judged(Ending("aborted", [answer(9, 9, end="abort")]), "aborts", feature=feature) == (0, 1)
        assert judged(Ending("answered", [answer(9)]), "aborts", feature=feature) == (0, 1)
    assert judged(Ending("aborted", [answer(9, end="abort")]), "aborts", feature="plain") == (0, 1)


def test_what_a_stock_server_refuses_must_be_refused() -> None:
    refusal = Ending("refused", detail="status 400")
    assert judged(refusal, right=refusal) == (0, 0)
    assert judged(RIGHT, right=refusal) == (1, 0)


def test_penalties_are_compared_where_they_hang_on_nothing_else() -> None:
    other = Ending("answered", [answer(7)])
    assert judged(other, feature="penalties") == (0, 1)
    assert judged(other, feature="penalties", setting="overlap") == (0, 0)
    assert judged(Ending("failed"), feature="penalties", setting="overlap") == (1, 0)


def test_a_check_that_fails_makes_a_run_bad() -> None:
    assert Run("plain", None, [], checks=[Check("a", True, "")]).good
    assert not Run("plain", None, [], checks=[Check("a", True, ""), Check("b", False, "")]).good


def process(third: float, fourth: float, **objects: int) -> Census:
    return Census(
        "sglang::scheduler",
        objects,
        [1, 1, 1, third - 9, third, third, third - 9, third, third, fourth, fourth, fourth + 9],
    )


def test_memory_may_waver_and_not_grow() -> None:
    assert flat(process(500, 520)).good
    assert not flat(process(500, 530)).good
    assert flat(process(4000, 4070)).good
    assert not flat(process(4000, 4090)).good


def test_a_few_objects_may_be_left_in_all_processes_together() -> None:
    assert objects([process(1, 1, RequestState=20), process(1, 1)]).good
    assert not objects([process(1, 1, RequestState=20), process(1, 1, RequestState=20)]).good


def test_faults_are_drawn_at_unlike_points() -> None:
    faults = draw_faults(5, 1)
    assert len({fault.point for fault in faults}) == 5
    assert draw_faults(5, 1) == faults
    assert all(isinstance(fault, Fault) and fault.call >= 1 for fault in faults)


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.timeout(1800)
def test_two_hundred_requests_that_misbehave(tmp_path: Path) -> None:
    """benchmarks/soak.py asks more of more servers."""
    runs = run_soak(requests=200, out_dir=tmp_path, parts=["n-gram drafts", FAULTS], faults=1, questions=60, seed=3)
    assert [(run.lost, run.wrong) for run in runs] == [([], [])] * 2
    assert [check for run in runs for check in run.checks if not check.good] == []
    assert all(len(run.endings) == 100 for run in runs)
