"""However a request ends in SGLang's own loop, nothing of it is kept; and nothing is forgotten that still runs."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest


def pass_time(it: Any) -> None:
    """Enough rounds for two looks at what SGLang still has."""
    for i in range(80):
        it.submit(f"later{i}", prompt=3, tokens=2)
        it.run()


def end_by_itself(it: Any) -> None:
    it.submit("r", prompt=10, tokens=20)
    it.run()


def abort_in_the_queue(it: Any) -> None:
    it.submit("running", prompt=10, tokens=20)
    it.round()
    it.submit("r", prompt=10, tokens=20)
    it.abort("r")
    it.run()


def abort_in_the_queue_after_a_round(it: Any) -> None:
    it.submit("running", prompt=10, tokens=20)
    it.round()
    for i in range(5):
        it.submit(f"r{i}", prompt=10, tokens=20)
    it.round()
    it.abort("r")
    it.abort("running")
    it.run()


def abort_while_running(it: Any) -> None:
    req = it.submit("r", prompt=10, tokens=20)
    it.round()
    it.abort("r")
    it.run()
    assert req.finished_reason.to_json()["type"] == "abort"


def abort_between_two_chunks(it: Any) -> None:
    it.submit("r", prompt=200, tokens=20)
    it.round()
    assert it.scheduler.chunked_req is not None
    it.abort("r")
    it.run()
    assert it.aborted == ["r"]


def outgrow_the_memory_alone(it: Any) -> None:
    req = it.submit("r", prompt=10, tokens=900, limit=50)
    it.round()
    req.sampling_params.max_new_tokens = 900  # verify steps allocate ahead; here its limit must do
    it.run()
    assert it.aborted == ["r"], "SGLang aborted it for want of memory, and told the tokenizer process only"


def preempted_then_aborted(it: Any) -> None:
    it.submit("r", prompt=20, tokens=200)
    for _ in range(10):
        it.round()
    it.submit("short", prompt=5, tokens=30)
    it.round()
    assert it.names(it.scheduler.waiting_queue) == ["r"]
    it.abort("r")
    it.run()


def retracted_then_aborted_before_anybody_ranks(it: Any) -> None:
    it.submit("r", prompt=20, tokens=200)
    for _ in range(5):
        it.round()
    (req,) = it.running.reqs
    it.running.release_req(0, 0)
    it.running.filter_batch(keep_indices=[])
    it.scheduler._add_request_to_queue(req, is_retracted=True)
    it.abort("r")
    it.run()


ENDS = (
    end_by_itself, abort_in_the_queue, abort_in_the_queue_after_a_round, abort_while_running, abort_between_two_chunks,
    outgrow_the_memory_alone, preempted_then_aborted, retracted_then_aborted_before_anybody_ranks,
)  # fmt: skip


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_however_a_request_ends_nothing_of_it_is_kept(engine: Any, end: Callable[[Any], None]) -> None:
    it = engine(slots=1, kv_tokens=300, chunk=32)
    end(it)
    pass_time(it)
    assert it.kept() == []


def test_what_sglang_still_runs_is_not_forgotten(engine: Any) -> None:
    """A long prompt between two chunks is in no batch, and who decodes meanwhile stands still for many rounds."""
    it = engine(slots=3, kv_tokens=2000, chunk=8, config={"preemption": {"enabled": False}})
    decoding = it.submit("decoding", prompt=4, tokens=90)
    it.round()
    chunked = it.submit("chunked", prompt=900, tokens=5)
    for i in range(100):
        it.submit(f"r{i}", prompt=2, tokens=2)
        it.round()
    assert it.scheduler.chunked_req is chunked
    assert chunked.laps_sd.state.running
    assert decoding.laps_sd.state.running
    it.run()
    assert {"chunked", "decoding"} <= set(it.names(it.finished))


def test_a_request_that_never_passed_us_ends_without_our_fields(engine: Any) -> None:
    from sglang.srt.managers.schedule_batch import FINISH_ABORT

    class Streamer:
        def build_additional_customized_info(self, reqs: list[Any]) -> dict[str, list[Any]]:
            return {}

    it = engine(slots=1, kv_tokens=300)
    ours = it.submit("ours", prompt=5, tokens=9)
    it.scheduler.waiting_queue.clear()
    ours.finished_reason = FINISH_ABORT("no such thing")  # a validation error: answered without ever waiting
    foreign = SimpleNamespace(finished=lambda: True)
    streamer = it.hooks.get_output_streamer_class(Streamer, None)()
    assert streamer.build_additional_customized_info([foreign]) == {}
    sent = streamer.build_additional_customized_info([foreign, ours])["laps_sd"]
    assert sent[0] == []
    assert sent[1][0]["steps"] == 0
    assert it.kept() == []


@pytest.mark.parametrize("end", [abort_in_the_queue, preempted_then_aborted, abort_between_two_chunks])
def test_an_abort_outside_of_the_stream_of_answers_brings_our_fields(engine: Any, end: Callable[[Any], None]) -> None:
    from laps_sd.serving.hooks.tokenizer import TokenizerHooks

    it = engine(slots=1, kv_tokens=300, chunk=32)
    end(it)
    abort = it.reasons["r"]
    waiting = SimpleNamespace(out_list=[])

    def handle(manager: Any, received: Any) -> None:
        """As ``TokenizerManager._handle_abort_req`` answers the client."""
        del manager.rid_to_state[received.rid]
        reason = received.finished_reason or {"type": "abort", "message": "Abort in waiting queue"}
        waiting.out_list.append({"meta_info": {"finish_reason": reason}})

    hooks: Any = TokenizerHooks()
    hooks.handle_abort_req(handle, SimpleNamespace(rid_to_state={"r": waiting}), abort)
    (answer,) = waiting.out_list
    assert answer["meta_info"]["finish_reason"] == {"type": "abort", "message": "Abort in waiting queue"}
    fields = answer["meta_info"]["laps_sd"]
    assert fields["preemptions"] == (end is preempted_then_aborted)
    assert fields["steps"] == (9 if end is preempted_then_aborted else 0)


def test_an_abort_of_somebody_who_is_gone_is_passed_on(engine: Any) -> None:
    from sglang.srt.managers.io_struct import AbortReq

    from laps_sd.serving.hooks.tokenizer import TokenizerHooks

    seen: list[Any] = []
    hooks: Any = TokenizerHooks()
    hooks.handle_abort_req(
        lambda _, received: seen.append(received), SimpleNamespace(rid_to_state={}), AbortReq(rid="r")
    )
    assert [received.finished_reason for received in seen] == [None]


@pytest.mark.parametrize("size", [{"slots": 1, "kv_tokens": 2000}, {"slots": 4, "kv_tokens": 420}], ids=["slot", "kv"])
def test_who_is_being_aborted_ends_with_its_next_step(engine: Any, size: dict[str, int]) -> None:
    """It was preempted, queued, and ended when it got a slot again."""
    it = engine(config={"admission": {"reserve": "sglang"}}, **size)
    long = it.submit("long", prompt=40, tokens=300)
    for _ in range(20):
        it.round()
    it.submit("short", prompt=100, tokens=10, limit=100)
    it.abort("long")
    it.round()
    it.round()
    assert it.names(it.finished) == ["long"]
    assert long.finished_reason.to_json()["type"] == "abort"
    assert long.fields["preemptions"] == 0


@pytest.mark.parametrize("name", ["laps-sd", "hrrn", "fcfs"])
def test_a_request_that_only_waits_for_its_refusal_goes_first_and_takes_nobodys_slot(engine: Any, name: str) -> None:
    from sglang.srt.managers.schedule_batch import FINISH_ABORT

    it = engine(slots=1, kv_tokens=2000, config={"policy": {"name": name}})
    running = it.submit("running", prompt=5, tokens=30)
    it.round()
    for i in range(3):
        it.submit(f"waiting{i}", prompt=5, tokens=30)
    refused = it.submit("refused", prompt=5, tokens=900)
    refused.to_finish = FINISH_ABORT("no such thing")  # as a validation error that is found before it is queued
    it.round()
    assert it.names(it.scheduler.waiting_queue)[0] == "refused"
    it.run()
    assert it.names(it.finished)[:2] == ["running", "refused"]
    assert running.fields["preemptions"] == 0
