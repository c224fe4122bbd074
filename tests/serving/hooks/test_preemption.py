"""Who takes whose slot, in SGLang's own loop: when slots are full, when KV tokens are, and when nobody may."""

from types import SimpleNamespace
from typing import Any

import pytest

from laps_sd.scheduler import CostModel


@pytest.mark.parametrize(("prefill_s", "first"), [(0.1, "short"), (1000.0, "long")])
def test_a_cost_model_that_is_told_decides_from_the_first_steps_on(engine: Any, prefill_s: float, first: str) -> None:
    it = engine(slots=1, kv_tokens=2000, cost=CostModel(prefill_s=prefill_s))
    it.submit("long", prompt=20, tokens=300)
    for _ in range(10):
        it.round()
    it.submit("short", prompt=5, tokens=8)
    it.run()
    assert it.names(it.finished)[0] == first


def test_a_short_request_takes_the_slot_of_a_long_one_and_the_long_one_resumes(engine: Any) -> None:
    it = engine(slots=1, kv_tokens=2000)
    long = it.submit("long", prompt=20, tokens=300)
    for _ in range(10):
        it.round()
    it.submit("short", prompt=5, tokens=8)
    it.run()
    assert it.names(it.finished) == ["short", "long"]
    assert len(long.output_ids) == 300
    assert long.fields["preemptions"] == 1
    assert long.fields["recomputed_tokens"] == 1, "its KV stayed in the radix cache"
    assert list(long.output_ids) == [it.token(20, i) for i in range(300)]


def test_without_keeping_kv_the_recomputation_is_charged(engine: Any) -> None:
    it = engine(slots=1, kv_tokens=2000, config={"preemption": {"keep_kv": False}})
    long = it.submit("long", prompt=20, tokens=300)
    for _ in range(10):
        it.round()
    it.submit("short", prompt=5, tokens=8)
    it.run()
    assert long.fields["preemptions"] == 1
    assert long.fields["recomputed_tokens"] >= 10, "the prompt is still shared, its own tokens are not"


def test_preemption_can_be_turned_off(engine: Any) -> None:
    it = engine(slots=1, kv_tokens=2000, config={"preemption": {"enabled": False}})
    long = it.submit("long", prompt=20, tokens=100)
    for _ in range(10):
        it.round()
    it.submit("short", prompt=5, tokens=8)
    it.run()
    assert it.names(it.finished) == ["long", "short"]
    assert long.fields["preemptions"] == 0


def test_a_request_that_finds_no_kv_tokens_preempts(engine: Any) -> None:
    """Slots are free, KV is not: SGLang alone would never ask for a victim here."""
    config = {"admission": {"reserve": "sglang"}}
    it = engine(slots=4, kv_tokens=420, config=config)
    long = it.submit("long", prompt=40, tokens=300)
    for _ in range(20):
        it.round()
    short = it.submit("short", prompt=100, tokens=10, limit=100)
    it.run()
    assert it.names(it.finished) == ["short", "long"]
    assert long.fields["preemptions"] >= 1
    assert short.fields["preemptions"] == 0


def test_kv_preemption_can_be_turned_off(engine: Any) -> None:
    config = {"admission": {"reserve": "sglang"}, "preemption": {"when_kv_full": False}}
    it = engine(slots=4, kv_tokens=420, config=config)
    it.submit("long", prompt=40, tokens=300)
    for _ in range(20):
        it.round()
    it.submit("short", prompt=100, tokens=10, limit=100)
    it.run()
    assert it.names(it.finished) == ["long", "short"]


def test_a_prompt_in_chunks_is_no_victim_until_it_decodes(engine: Any) -> None:
    it = engine(slots=2, kv_tokens=2000, chunk=32)
    chunked = it.submit("chunked", prompt=200, tokens=20)
    it.round()
    for i in range(3):
        it.submit(f"short{i}", prompt=5, tokens=4)
    while it.scheduler.chunked_req is not None:
        it.round()
    assert chunked.laps_sd.state.preemptions == 0
    it.run()
    assert sorted(it.names(it.finished)) == ["chunked", "short0", "short1", "short2"]
    assert len(chunked.output_ids) == 20


def test_a_preempted_request_is_not_turned_away_at_the_queue_limit(engine: Any) -> None:
    it = engine(slots=1, kv_tokens=2000, max_queued=1)
    it.submit("long", prompt=20, tokens=200)
    for _ in range(5):
        it.round()
    it.submit("short", prompt=5, tokens=8)
    it.submit("too many", prompt=5, tokens=8)
    assert it.aborted == ["too many"], "the limit holds for new requests"
    it.run()
    assert sorted(it.names(it.finished)) == ["long", "short"]


def test_who_needs_a_slot_for_every_beam_preempts_nobody(engine: Any) -> None:
    """One slot is free, four are needed: SGLang calls that full, and one victim would not do."""
    it = engine(slots=4, kv_tokens=2000)
    for i in range(3):
        it.submit(f"long{i}", prompt=20, tokens=300)
    for _ in range(10):
        it.round()
    beams = it.submit("beams", prompt=5, tokens=8)
    beams.beam_group = SimpleNamespace(beam_width=4)
    for _ in range(5):
        it.round()
    assert it.names(it.scheduler.waiting_queue) == ["beams"]
    assert it.preemptions() == 0


def test_who_needs_kv_for_beams_preempts_nobody(engine: Any) -> None:
    it = engine(slots=8, kv_tokens=420, config={"admission": {"reserve": "sglang"}})
    it.submit("long", prompt=40, tokens=300)
    for _ in range(20):
        it.round()
    it.submit("beams", prompt=100, tokens=10, limit=100).beam_group = SimpleNamespace(beam_width=2)
    for _ in range(5):
        it.round()
    assert it.names(it.running.reqs) == ["long"]
    assert it.preemptions() == 0


def test_a_slot_that_became_free_is_not_preempted_for_again(engine: Any) -> None:
    """The first candidate takes the KV of two and the slot of one; the second finds the other slot."""
    it = engine(slots=3, kv_tokens=630)
    for i in range(3):
        it.submit(f"long{i}", prompt=100, tokens=100, predicted=600)
        it.round()
    for _ in range(5):
        it.round()
    it.submit("heavy", prompt=320, tokens=3, limit=30).priority = 1  # first in the queue
    it.submit("light", prompt=5, tokens=3)
    it.round()
    assert {"heavy", "light"} <= set(it.names(it.running.reqs))
    assert it.preemptions() == 2
    it.run()
    assert len(it.finished) == 5


@pytest.mark.parametrize("size", [{"slots": 1, "kv_tokens": 2000}, {"slots": 4, "kv_tokens": 420}], ids=["slot", "kv"])
@pytest.mark.parametrize("exact", [True, False])
def test_who_could_not_resume_exactly_keeps_its_slot(engine: Any, exact: bool, size: dict[str, int]) -> None:
    it = engine(config={"admission": {"reserve": "sglang"}}, **size)
    long = it.submit("long", prompt=40, tokens=300)
    long.return_hidden_states = not exact
    for _ in range(20):
        it.round()
    it.submit("short", prompt=100, tokens=10, limit=100)
    it.run()
    assert it.names(it.finished) == (["short", "long"] if exact else ["long", "short"])
    assert (long.fields["preemptions"] > 0) is exact


def test_sglangs_own_retraction_takes_who_cannot_resume_exactly_last(engine: Any) -> None:
    it = engine(slots=4, kv_tokens=160, config={"preemption": {"enabled": False}})
    reqs = [it.submit(f"r{i}", prompt=10, tokens=40 + 10 * i, limit=90, predicted=4) for i in range(4)]
    reqs[3].return_hidden_states = True  # the longest, which else goes first
    it.run()
    assert any(req.retraction_count for req in reqs)
    assert reqs[3].retraction_count == 0


def test_decode_steps_that_ride_in_the_prefill_of_others_are_counted(engine: Any) -> None:
    it = engine(slots=2, kv_tokens=2000, chunk=8, mixed=True)
    decoding = it.submit("decoding", prompt=4, tokens=40)
    it.round()
    it.submit("chunked", prompt=150, tokens=5)
    it.run()
    assert decoding.fields["steps"] == 39, "every token but the first, which its prefill gave"
    assert len(decoding.output_ids) == 40


def test_an_answer_that_ignores_its_end_is_planned_as_long_as_its_limit(engine: Any) -> None:
    """Called short, admitted on that word, and then retracted again and again."""
    it = engine(slots=8, kv_tokens=700, config={"preemption": {"enabled": False}})
    reqs = []
    for i in range(8):
        req = it.submit(f"r{i}", prompt=10, tokens=200, predicted=20)
        req.sampling_params.ignore_eos = True
        reqs.append(req)
    it.run()
    assert sum(req.retraction_count for req in reqs) == 0
    assert [req.fields["predicted_tokens"] for req in reqs] == [200] * 8


@pytest.mark.parametrize(("caps", "proposed"), [(None, [3, 3, 3]), ([4, 2, 1], [3, 1, 0])])
def test_drafts_count_as_proposed_where_each_request_has_its_own_number(
    engine: Any, monkeypatch: pytest.MonkeyPatch, caps: list[int] | None, proposed: list[int]
) -> None:
    """Ragged verification says how many tokens it verified of each request, the root included."""
    import torch

    it = engine(slots=3, kv_tokens=2000)
    for i in range(3):
        it.submit(f"r{i}", prompt=5, tokens=50)
    it.round()
    steps: list[tuple[int, int, int]] = []
    monkeypatch.setattr(it.hooks.active.side, "on_step", lambda req, k, n, tokens: steps.append((k, n, tokens)))
    result = SimpleNamespace(
        num_correct_drafts_per_req_cpu=[2, 1, 0],
        speculative_num_draft_tokens=4,
        cap_lens=None if caps is None else torch.tensor(caps),
    )
    spec = SimpleNamespace(speculative_algorithm="DSPARK", speculative_num_steps=None, speculative_eagle_topk=1)
    monkeypatch.setattr("laps_sd.serving.hooks.scheduler.get_spec", lambda: spec)
    outcome = ([[1, 1, 1], [1, 1], [1]], None)
    it.hooks.normalize_decode_outputs(outcome, None, batch=it.running, result=result)
    assert steps == [(2, proposed[0], 3), (1, proposed[1], 2), (0, proposed[2], 1)]


def test_with_many_slots_swaps_ride_in_a_prefill_that_runs_anyway(engine: Any) -> None:
    it = engine(slots=8, kv_tokens=8000, cost=CostModel(prefill_s=1.0))
    longs = [it.submit(f"long{i}", prompt=20 + i, tokens=300) for i in range(7)]
    it.submit("first to end", prompt=5, tokens=40, predicted=60)
    for _ in range(10):
        it.round()
    for i in range(16):
        it.submit(f"short{i}", prompt=40 + i, tokens=8)
    while "first to end" not in it.names(it.finished):
        assert sum(long.laps_sd.state.preemptions for long in longs) == 0, "a launch for a swap alone is too dear"
        it.round()
    it.run()
    assert it.preemptions() > 0
    assert len(it.finished) == 24
    for i, long in enumerate(longs):
        assert list(long.output_ids) == [it.token(20 + i, t) for t in range(300)]


def test_freed_slots_are_filled_together_where_launches_are_dear(engine: Any) -> None:
    it = engine(slots=16, kv_tokens=16000, cost=CostModel(prefill_s=4.0), config={"preemption": {"enabled": False}})
    for i in range(16):
        it.submit(f"r{i}", prompt=10 + i, tokens=20 + 2 * i if i < 3 else 200, predicted=200)
    it.round()
    for i in range(20):
        it.submit(f"w{i}", prompt=30 + i, tokens=10, predicted=200)
    sizes = []
    while len(it.finished) < 3:
        it.round()
        sizes.append(len([r for r in it.running.reqs if not r.finished()]))
    assert min(sizes) <= 14, "two slots stay empty until a third is"
    it.run()
    assert len(it.finished) == 36
