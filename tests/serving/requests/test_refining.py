"""Refinement in the scheduler process: due at checkpoints, a few a round, the same on every rank, gone at the end."""

from array import array
from collections.abc import Callable
from typing import Any

import pytest

from laps_sd.data.progress.classes import TokenClasses
from laps_sd.data.progress.counting import progress_of
from laps_sd.scheduler import make_policy
from laps_sd.serving.requests.exchange import Attachment
from laps_sd.serving.requests.refining import Refining
from laps_sd.serving.requests.scheduler_side import SchedulerSide

Make = Callable[..., Any]


def side_with(refining: Refining | None, policy: str = "laps-sd", **options: Any) -> SchedulerSide:
    return SchedulerSide(make_policy(policy, slots=4), max_correct_drafts=3, refining=refining, **options)


def admit(side: SchedulerSide, make_req: Make, prediction: Make, rid: str, **more: Any) -> Any:
    attachment = more.pop("attachment", None) or Attachment(prediction(100))
    req = make_req(rid, limit=1000, **more)
    req.output_ids = array("q")
    side.on_received(req, attachment)
    side.rank([req])
    side.on_admit(req)
    return req


def say(side: SchedulerSide, req: Any, *ids: int) -> None:
    """One verify step that emits these tokens."""
    side.on_step(req, len(ids) - 1, 3, len(ids))
    req.output_ids.extend(ids)


def talk(side: SchedulerSide, req: Any, tokens: int, token: int = 1) -> None:
    for _ in range(tokens // 2):
        say(side, req, token, token)


@pytest.fixture
def side(classes: TokenClasses, refiner: Any) -> SchedulerSide:
    return side_with(Refining(classes, refiner, 4))


def test_what_was_said_decides(side: SchedulerSide, make_req: Make, prediction: Make) -> None:
    brief, wordy = (admit(side, make_req, prediction, rid) for rid in ("brief", "wordy"))
    talk(side, brief, 32, token=9)  # sentence after sentence
    talk(side, wordy, 32, token=1)
    states = [side.state_of(req) for req in (brief, wordy)]
    assert [state.refinements for state in states] == [(), ()], "not in a step, but in the next round"
    side.rank([])
    assert [state.refinements[-1].at for state in states] == [32, 32]
    assert states[0].perceived_service < 0.5 * states[1].perceived_service


def test_a_step_that_overshoots_reads_no_more_than_the_checkpoint(
    side: SchedulerSide, make_req: Make, prediction: Make
) -> None:
    exact, over = (admit(side, make_req, prediction, rid) for rid in ("exact", "over"))
    talk(side, exact, 32)
    talk(side, over, 30)
    say(side, over, 1, 1, 9, 9)
    side.rank([])
    one, other = (side.state_of(req).refinements[-1] for req in (exact, over))
    assert one.at == other.at == 32
    assert one.curve == other.curve


def test_a_round_refines_so_many_and_the_oldest_first(
    classes: TokenClasses, refiner: Any, make_req: Make, prediction: Make
) -> None:
    side = side_with(Refining(classes, refiner, 2))
    reqs = [admit(side, make_req, prediction, str(i)) for i in range(5)]
    for req in reqs:
        talk(side, req, 32)
    done = []
    for _ in range(3):
        side.rank([])
        done.append([len(side.state_of(req).refinements) for req in reqs])
    assert done == [[1, 1, 0, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]


def test_who_waited_past_another_checkpoint_is_refined_once_at_the_last(
    side: SchedulerSide, make_req: Make, prediction: Make
) -> None:
    req = admit(side, make_req, prediction, "a")
    talk(side, req, 140)
    side.rank([])
    side.rank([])
    assert [r.at for r in side.state_of(req).refinements] == [128]


def test_a_request_that_lost_its_slot_is_refined_by_what_it_had_said(
    side: SchedulerSide, make_req: Make, prediction: Make
) -> None:
    req = admit(side, make_req, prediction, "a")
    talk(side, req, 70)
    side.on_preempt(req, 0, "retraction")
    side.rank([req])
    assert [r.at for r in side.state_of(req).refinements] == [64]
    side.on_admit(req)
    talk(side, req, 70)
    side.rank([])
    assert [r.at for r in side.state_of(req).refinements] == [64, 128]


def test_who_ends_before_its_turn_is_not_refined(side: SchedulerSide, make_req: Make, prediction: Make) -> None:
    req = admit(side, make_req, prediction, "a")
    talk(side, req, 40)
    fields = side.on_finish(req, cut=False)
    side.rank([])
    assert fields["refinements"] == 0
    assert fields["refined_tokens"] is None
    assert side.state_of(req).refinements == ()


def test_the_response_says_how_often_and_what_was_expected_last(
    side: SchedulerSide, make_req: Make, prediction: Make
) -> None:
    req = admit(side, make_req, prediction, "a")
    talk(side, req, 70)
    side.rank([])
    fields = side.on_finish(req, cut=False)
    assert fields["refinements"] == 1
    assert fields["refined_tokens"] == pytest.approx(64 + side.state_of(req).refinements[-1].left(1000))


@pytest.mark.parametrize(
    ("attachment", "more"),
    [(Attachment(), {}), ("hinted", {}), (None, {"ignore_eos": True})],
    ids=["unpredicted", "hinted", "runs to its limit"],
)
def test_where_nothing_of_ours_was_predicted_nothing_is_refined(
    side: SchedulerSide, make_req: Make, prediction: Make, attachment: Any, more: dict[str, Any]
) -> None:
    if attachment == "hinted":
        attachment = Attachment(prediction(100), hinted=True)
    req = admit(side, make_req, prediction, "a", attachment=attachment, **more)
    talk(side, req, 140)
    side.rank([])
    assert side.state_of(req).refinements == ()


def test_counts_of_another_tokenizer_are_not_read(
    classes: TokenClasses, refiner: Any, make_req: Make, prediction: Make
) -> None:
    other = TokenClasses.of_texts([" word", "."] * 500)
    assert other.name != classes.name
    side = side_with(Refining(other, refiner, 4))
    req = admit(side, make_req, prediction, "a")
    talk(side, req, 140)
    side.rank([])
    assert side.state_of(req).refinements == ()


def test_ranks_that_see_the_same_steps_refine_alike(
    classes: TokenClasses, refiner: Any, make_req: Make, prediction: Make
) -> None:
    told = []
    for _ in range(2):
        side = side_with(Refining(classes, refiner, 2))
        reqs = [admit(side, make_req, prediction, str(i)) for i in range(6)]
        for turn in range(90):
            for i, req in enumerate(reqs):
                say(side, req, *([1 + (turn * i) % 9] * (1 + i % 3)))
            side.rank([])
        told.append([(side.state_of(req).refinements, side.state_of(req).key) for req in reqs])
    assert told[0] == told[1]
    assert all(refinements for refinements, _ in told[0])


def test_the_record_says_what_the_answer_had_said(classes: TokenClasses, make_req: Make, prediction: Make) -> None:
    side = side_with(Refining(classes, None, 4), keep_steps=True)
    req = admit(side, make_req, prediction, "a")
    talk(side, req, 100, token=9)
    measured = side.on_finish(req, cut=True)["measured"]
    wanted = progress_of(req.output_ids, classes)
    assert measured["progress"] == list(wanted.counts) != []
    assert measured["progress_table"] == wanted.table


def test_standing_down_forgets_all(side: SchedulerSide, make_req: Make, prediction: Make) -> None:
    req = admit(side, make_req, prediction, "a")
    talk(side, req, 40)
    side.stand_down("a hook")
    assert side._refining is not None
    assert side._refining.refine_some(side.policy) == 0
    assert side.state_of(req).refinements == ()
