"""Rounds are counted alike under every policy, in SGLang's own loop, and nothing is decided otherwise for it."""

import json
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from laps_sd.serving import rounds as rounds_module
from laps_sd.serving.flags import META_KEY
from laps_sd.serving.hooks.check import difference
from laps_sd.serving.hooks.targets import ROUND_TARGETS, Target
from laps_sd.serving.rounds import RequestRounds, RoundLog


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("target", ROUND_TARGETS, ids=lambda t: t.name)
def test_the_installed_sglang_has_what_is_hooked(sglang: ModuleType, target: Target) -> None:
    assert difference(target) is None


def test_a_request_knows_its_rounds_and_who_waited_for_it(engine: Any, counting: Any, tmp_path: Path) -> None:
    it = engine(config={"policy": {"name": "fcfs"}}, slots=1, kv_tokens=400)
    counting(it)
    it.submit("a", prompt=5, tokens=4)
    it.submit("b", prompt=5, tokens=3)
    it.run()
    first, second = (req.fields["rounds"] for req in it.finished)
    # One prefill and three decode steps; b waits for all of them.
    assert first == {"arrival": 0, "first_token": 1, "end": 4, "spans": [(0, 4)]}
    assert second == {"arrival": 0, "first_token": 5, "end": 7, "spans": [(4, 7)]}
    assert it.finished[0].fields["preemptions"] == 0, "what laps-sd says of the request stands beside"
    logged = lines(tmp_path / "rounds.jsonl")
    rounds = [line for line in logged if "round" in line]
    assert [line["round"] for line in rounds] == list(range(1, 8))
    assert [line["kind"] for line in rounds] == ["prefill", *["decode"] * 3, "prefill", *["decode"] * 2]
    assert [line["waiting"] for line in rounds] == [1, 1, 1, 1, 0, 0, 0]
    assert [line["tokens"] for line in rounds][::4] == [5, 5]
    assert [line["at"] for line in rounds] == sorted(line["at"] for line in rounds)
    ended = [line for line in logged if "rid" in line]
    assert [(line["rid"], line["accept_lengths"]) for line in ended] == [("a", [1, 1, 1]), ("b", [1, 1])]


def test_a_preempted_request_has_a_span_for_each_time_it_had_a_slot(engine: Any, counting: Any) -> None:
    it = engine(config={"policy": {"name": "las"}}, slots=1, kv_tokens=400)
    counting(it)
    it.submit("long", prompt=5, tokens=40)
    for _ in range(12):
        it.round()
    it.submit("short", prompt=5, tokens=4)
    it.run()
    told = {req.rid: req.fields["rounds"] for req in it.finished}
    assert it.preemptions() > 0
    spans = told["long"]["spans"]
    assert len(spans) == 1 + it.finished[-1].laps_sd.state.preemptions
    assert all(begin < end for begin, end in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    inside = [(begin, end) for begin, end in told["short"]["spans"]]
    assert all(end <= b or begin >= e for begin, end in spans for b, e in inside), "one slot, one request"
    busy = sum(end - begin for begin, end in [*spans, *inside])
    assert busy == max(fields["end"] for fields in told.values())


def test_chunks_of_a_prompt_are_one_span(engine: Any, counting: Any) -> None:
    it = engine(slots=2, kv_tokens=400, chunk=16)
    counting(it)
    it.submit("a", prompt=60, tokens=2)
    it.run()
    (rounds,) = (req.fields["rounds"] for req in it.finished)
    assert rounds["spans"] == [(0, rounds["end"])]
    assert rounds["first_token"] == 4, "four chunks of 16"


def test_counting_changes_nothing(engine: Any, counting: Any) -> None:
    def serve(count: bool) -> list[tuple[str, list[int], int]]:
        it = engine(slots=2, kv_tokens=300, chunk=16)
        if count:
            counting(it)
        for i in range(12):
            it.submit(f"r{i}", prompt=3 + 5 * i, tokens=3 + (7 * i) % 20)
            it.round()
        it.run()
        return [(req.rid, list(req.output_ids), req.laps_sd.state.preemptions) for req in it.finished]

    assert serve(count=True) == serve(count=False)


def test_a_hook_that_fails_stops_the_counting_and_nothing_else(
    engine: Any, counting: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = engine(slots=2, kv_tokens=300)
    hooks = counting(it)
    monkeypatch.setattr(RequestRounds, "in_decode", lambda *_: 1 / 0)
    it.submit("a", prompt=5, tokens=4)
    it.run()
    assert [len(req.output_ids) for req in it.finished] == [4]
    assert not hooks.active
    assert "rounds" not in it.finished[0].fields
    assert it.hooks.active is not None, "laps-sd itself goes on"
    assert "rounds are counted no more" in caplog.text


def test_a_log_that_cannot_be_written_is_said_in_one_sentence_and_hooks_nothing(
    sglang: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from laps_sd.serving.hooks import rounds as hooks

    registered: list[object] = []
    monkeypatch.setattr(hooks, "register_hooks", lambda *found: registered.append(found))
    monkeypatch.setenv("LAPS_SD_ROUNDS", str(tmp_path / "missing" / "rounds.jsonl"))
    hooks.RoundHooks().register()
    assert registered == []
    (record,) = caplog.records
    assert "which cannot be written (No such file or directory)" in record.getMessage()
    assert record.exc_info is None


def test_without_laps_sd_the_answer_carries_the_rounds_alone(sglang: ModuleType) -> None:
    from laps_sd.serving.hooks.rounds import RoundHooks, add_rounds

    class Request:
        rid = "x"

        def __init__(self, ended: bool) -> None:
            self.ended = ended
            self.laps_sd_rounds = RequestRounds(0)

        def finished(self) -> bool:
            return self.ended

    info: dict[str, list[Any]] = {}
    add_rounds(info, [Request(True), Request(False)], RoundHooks())  # type: ignore[list-item]
    assert info == {META_KEY: [[{"rounds": {"arrival": 0, "first_token": 0, "end": 0, "spans": []}}], []]}


def test_the_log_ends_before_it_fills_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds_module, "MOST_ROUNDS", 3)
    with (tmp_path / "log").open("ab", buffering=0) as file:
        log = RoundLog(file)
        for number in range(9):
            log.note_round(number, "decode", 1, 0, 0, False)
    assert len(lines(tmp_path / "log")) == 3
