"""KV tokens in SGLang's own loop: who is passed over, what a victim really frees, and that no token is ever lost."""

import random
from typing import Any

import pytest


def test_a_lighter_request_passes_one_that_does_not_fit(engine: Any) -> None:
    it = engine(slots=4, kv_tokens=300, config={"preemption": {"enabled": False}})
    it.submit("running", prompt=40, tokens=120)
    it.round()
    it.submit("heavy", prompt=150, tokens=5, limit=100)
    it.submit("light", prompt=5, tokens=30)
    for _ in range(3):
        it.round()
    assert "light" in it.names(it.running.reqs)
    it.run()
    assert sorted(it.names(it.finished)) == ["heavy", "light", "running"]


def test_nothing_passes_when_that_is_turned_off(engine: Any) -> None:
    config = {"preemption": {"enabled": False}, "admission": {"pass_over": 0}}
    it = engine(slots=4, kv_tokens=300, config=config)
    it.submit("running", prompt=40, tokens=120)
    it.round()
    it.submit("heavy", prompt=150, tokens=5, limit=100)
    it.submit("light", prompt=5, tokens=30)
    for _ in range(3):
        it.round()
    assert it.names(it.running.reqs) == ["running"]


def test_retraction_takes_the_longest_and_forgets_nothing(engine: Any) -> None:
    """Reserving by predictions that are far too short lets too many in; SGLang then has to retract."""
    it = engine(slots=4, kv_tokens=160, config={"preemption": {"enabled": False}})
    reqs = [it.submit(f"r{i}", prompt=10, tokens=40 + 10 * i, limit=90, predicted=4) for i in range(4)]
    it.run()
    assert sorted(it.names(it.finished)) == ["r0", "r1", "r2", "r3"]
    assert any(req.retraction_count for req in reqs), "the pool was too small on purpose"
    for i, req in enumerate(reqs):
        assert len(req.output_ids) == 40 + 10 * i
        assert req.laps_sd.state.generated == 40 + 10 * i


def test_sglangs_own_retraction_is_left_alone_where_it_was_asked_for(engine: Any) -> None:
    def retracted(retraction: str) -> list[str]:
        it = engine(slots=2, kv_tokens=70, config={"preemption": {"enabled": False, "retraction": retraction}})
        it.submit("urgent", prompt=5, tokens=40, limit=45, predicted=6)
        it.submit("patient", prompt=4, tokens=44, limit=44, predicted=7).priority = -1
        it.run()
        return [req.rid for req in it.finished if req.retraction_count]

    assert retracted("policy") == ["patient"]
    assert retracted("sglang") == ["urgent"], "the longer prompt, as SGLang does"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("config", [{}, {"preemption": {"keep_kv": False}}, {"admission": {"reserve": "sglang"}}])
def test_whatever_arrives_everybody_ends_and_no_token_leaks(engine: Any, seed: int, config: dict[str, Any]) -> None:
    rng = random.Random(seed)
    size = {"slots": rng.randint(1, 4), "kv_tokens": rng.choice([220, 400, 900]), "chunk": rng.choice([16, 4096])}
    it = engine(config=config, **size)
    reqs = []
    for i in range(25):
        tokens = rng.choice([2, 5, 20, 60])
        predicted = rng.choice([-1, -1, None, 3, 90])  # well, not at all, far too short, far too long
        prompt = rng.randint(1, 40)
        req = it.submit(f"r{i}", prompt=prompt, tokens=tokens, limit=rng.choice([tokens, 100]), predicted=predicted)
        reqs.append((req, tokens))
        for _ in range(rng.randint(0, 6)):
            it.round()
        if rng.random() < 0.1 and it.scheduler.waiting_queue:
            # Its client goes away: SGLang takes it out of the queue and tells nobody.
            gone = it.scheduler.waiting_queue.pop(rng.randrange(len(it.scheduler.waiting_queue)))
            reqs = [(r, n) for r, n in reqs if r is not gone]
    it.run()
    assert sorted(it.names(it.finished)) == sorted(r.rid for r, _ in reqs)
    assert all(len(req.output_ids) == tokens for req, tokens in reqs)
    assert it.allocator.available_size() + it.tree.evictable_size() == it.kv_tokens
    assert it.tree.protected_size() == 0


def fill_beside_a_cached_prompt(it: Any) -> Any:
    """Three requests fill the KV pool beside the prompt of ``c``, which comes again: return it, waiting."""
    it.submit("c", prompt=100, tokens=1)
    it.run()
    for i in range(3):
        it.submit(f"v{i}", prompt=90, tokens=100, predicted=90)
        it.round()
    for _ in range(66):
        it.round()
    assert len(it.running.reqs) == 3
    return it.submit("c", prompt=100, tokens=3, limit=40)


@pytest.mark.parametrize("unified", [False, True])
def test_a_candidates_cached_prefix_outlives_the_release_of_its_victim(engine: Any, unified: bool) -> None:
    """Releasing a victim evicts, the oldest first: the prefix that the candidate was just matched with."""
    it = engine(slots=4, kv_tokens=580, unified=unified)
    candidate = fill_beside_a_cached_prompt(it)
    it.round()
    assert candidate in it.running.reqs
    assert candidate.laps_sd.state.cached_tokens == 99
    assert it.preemptions() == 1
    it.run()
    assert len(it.finished) == 5


@pytest.mark.parametrize("unified", [False, True])
def test_a_cached_prefix_is_no_room_for_the_one_it_belongs_to(engine: Any, unified: bool) -> None:
    """Counted as free it would be enough, and nobody be preempted round after round, while SGLang's check says no."""
    it = engine(slots=4, kv_tokens=620, unified=unified)
    candidate = fill_beside_a_cached_prompt(it)
    it.round()
    assert candidate in it.running.reqs
    assert it.preemptions() == 1


@pytest.mark.parametrize("shared", [0, 150])
def test_nobody_loses_a_slot_to_a_request_that_does_not_fit_then(engine: Any, shared: int) -> None:
    """Even without the others it does not fit; those who share its prefix free no token of that."""
    it = engine(slots=2, kv_tokens=300)
    for i in range(2):
        it.submit(f"long{i}", prompt=shared + 10, tokens=50, limit=60, predicted=600, shared=shared)
        it.round()
    it.submit("short", prompt=280, tokens=3, limit=30, predicted=2, shared=shared)
    for _ in range(20):
        it.round()
    assert sorted(it.names(it.running.reqs)) == ["long0", "long1"]
    assert it.preemptions() == 0


@pytest.mark.parametrize("slots", [2, 3])
def test_who_shares_a_prefix_frees_it_for_nobody(engine: Any, slots: int) -> None:
    it = engine(slots=slots, kv_tokens=300)
    for i in range(2):
        it.submit(f"long{i}", prompt=160, tokens=40, limit=50, predicted=600, shared=150)
        it.round()
    it.submit("short", prompt=270, tokens=3, limit=40, predicted=2, shared=150)
    for _ in range(20):
        it.round()
    assert it.preemptions() == 0


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("unified", [False, True])
def test_with_shared_prefixes_everybody_ends_too(engine: Any, unified: bool, seed: int) -> None:
    rng = random.Random(seed)
    config = rng.choice([{}, {"preemption": {"keep_kv": False}}, {"admission": {"reserve": "sglang"}}])
    size = {"slots": rng.randint(2, 6), "kv_tokens": rng.choice([260, 400, 600]), "chunk": rng.choice([16, 4096])}
    it = engine(config=config, unified=unified, **size)
    reqs = []
    for _ in range(40):
        tokens = rng.choice([2, 5, 20, 60])
        limit, predicted = rng.choice([tokens, 80]), rng.choice([-1, -1, 3, 90])
        prompt, shared = rng.choice([10, 60, 100]), rng.choice([0, 30, 90])
        rid = f"r{rng.randrange(8)}"  # the same again: its whole prompt is cached
        reqs.append(
            (it.submit(rid, prompt=prompt, tokens=tokens, limit=limit, predicted=predicted, shared=shared), tokens)
        )
        for _ in range(rng.randint(0, 6)):
            it.round()
    it.run()
    assert [len(req.output_ids) for req, _ in reqs] == [tokens for _, tokens in reqs]
    assert it.allocator.available_size() + it.tree.evictable_size() == it.kv_tokens
    assert it.tree.protected_size() == 0
