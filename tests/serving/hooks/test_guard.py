"""Whatever our hooks raise, SGLang goes on by itself: no request is lost, no KV token leaks, no answer changes.

``engine`` is SGLang's own scheduling loop; see conftest.
"""

import logging
import random
import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from laps_sd.serving.hooks.agreement import all_ranks_fail
from laps_sd.serving.hooks.guard import guard_after, guard_around

Engine = Callable[..., Any]


class Told:
    """Stands in for a fall-back: remembers which hook failed and how."""

    def __init__(self) -> None:
        self.failures: list[tuple[str, str]] = []

    def __call__(self, name: str, error: Exception) -> None:
        self.failures.append((name, str(error)))


def double(x: int) -> int:
    return 2 * x


def failing(*_args: object, **_kwargs: object) -> Any:
    raise KeyError("ours")


# --- one guarded hook ---------------------------------------------------------------------------------------------


def test_after_a_hook_that_fails_sglangs_own_result_stands() -> None:
    told = Told()
    assert guard_after("f", lambda result, x: result + 1, told)(4, 2) == 5
    assert guard_after("f", failing, told)(4, 2) is None, "which SGLang takes for: keep yours"
    assert told.failures == [("f", "'ours'")]


def test_around_a_function_it_is_called_exactly_once_whenever_the_hook_fails() -> None:
    calls: list[int] = []

    def original(x: int) -> int:
        calls.append(x)
        return double(x)

    def late(function: Callable[[int], int], x: int) -> int:
        function(x + 1)
        return int(failing())

    told = Told()
    assert guard_around("f", lambda function, x: function(x) + 1, told)(original, 2) == 5
    assert guard_around("f", failing, told)(original, 3) == 6
    assert guard_around("f", late, told)(original, 4) == 10, "the result of the call that was made"
    assert calls == [2, 3, 5]
    assert len(told.failures) == 2


def test_what_sglang_raises_goes_through_and_is_no_failure_of_ours() -> None:
    def broken(x: int) -> int:
        raise ZeroDivisionError

    told = Told()
    with pytest.raises(ZeroDivisionError):
        guard_around("f", lambda function, x: function(x), told)(broken, 1)
    assert told.failures == []
    with pytest.raises(KeyboardInterrupt):
        guard_after("f", lambda: (_ for _ in ()).throw(KeyboardInterrupt), told)()


# --- the scheduling loop ------------------------------------------------------------------------------------------

#: Whom a fault is put into, and by what name.
POINTS = [
    *(("policy", name) for name in (
        "start_round", "rank", "on_arrival", "victim", "on_admit", "on_step", "on_preempt", "reserve_tokens",
        "may_pass", "place", "on_finish", "on_abort",
    )),
    *(("side", name) for name in ("on_received", "state_of", "keep_order", "plans_by_prediction", "on_finish")),
    ("clock", "on_decode"), ("tree", "checkpoint"),
]  # fmt: skip
ERRORS: list[Exception] = [ValueError("a fault of ours"), MemoryError(), KeyError("gone"), RecursionError()]


class Fault:
    """Raises at the call of this number and at every later one; before that it is the function itself."""

    def __init__(self, function: Callable[..., Any], number: int, error: Exception) -> None:
        self.function, self.left, self.error, self.struck = function, number, error, False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.left -= 1
        if self.left > 0:
            return self.function(*args, **kwargs)
        self.struck = True
        raise self.error


def put_fault(loop: Any, point: tuple[str, str], number: int, error: Exception) -> Fault:
    active = loop.hooks.active
    owners = {"policy": active.side.policy, "side": active.side, "clock": active.clock, "tree": loop.tree}
    owner, name = owners[point[0]], point[1]
    if owner is loop.tree:  # SGLang itself keeps KV by it: ours is to keep that of a request that goes on
        real = owner.checkpoint

        def checkpoint(req: Any, **kwargs: Any) -> Any:
            return fault(req, **kwargs) if active.admission.releasing else real(req, **kwargs)

        fault = Fault(real, number, error)
        owner.checkpoint = checkpoint
        return fault
    fault = Fault(getattr(owner, name), number, error)
    setattr(owner, name, fault)
    return fault


def traffic(loop: Any, rng: random.Random, rounds: int = 60) -> list[Any]:
    """Requests that come one by one while others run, many of them predicted wrong, some with an impatient client."""
    sent = []
    for i in range(rounds):
        if rng.random() < 0.5:
            tokens = rng.choice((2, 3, 5, 30, 45))
            predicted = rng.choice((tokens, 2, 2, 40))
            length = {"prompt": rng.randint(3, 30), "shared": rng.choice((0, 0, 3, 8))}
            sent.append(loop.submit(f"r{i}", tokens=tokens, limit=60, predicted=predicted, **length))
        if sent and rng.random() < 0.04:
            loop.abort(rng.choice(sent).rid)
        loop.round()
    return sent


def check_answers(loop: Any, sent: list[Any]) -> None:
    """Every request ended once: with the answer that only its prompt decides, or aborted as its client asked."""
    ended = [req.rid for req in loop.finished] + loop.aborted
    assert sorted(ended) == sorted(req.rid for req in sent)
    for req in loop.finished:
        if req.finished_reason.to_json()["type"] != "abort":
            expected = [loop.token(len(req.origin_input_ids), i) for i in range(req.will_produce)]
            assert list(req.output_ids) == expected


@pytest.mark.parametrize("number", [1, 4, 19])
@pytest.mark.parametrize("point", POINTS, ids="-".join)
def test_no_request_is_lost_wherever_a_hook_fails(
    engine: Engine, caplog: pytest.LogCaptureFixture, point: tuple[str, str], number: int
) -> None:
    struck = 0
    for seed in range(4):
        caplog.clear()
        rng = random.Random(f"{point} {number} {seed}")
        config = {"preemption": {"keep_kv": seed != 1 or point[0] == "tree"}}
        loop = engine(config, slots=rng.choice((2, 4)), kv_tokens=rng.choice((110, 160)), unified=seed == 2)
        fault = put_fault(loop, point, number, rng.choice(ERRORS))
        sent = traffic(loop, rng)
        loop.run()
        check_answers(loop, sent)
        failures = [r for r in caplog.records if r.levelno == logging.ERROR]
        if not fault.struck:
            continue
        struck += 1
        assert len(failures) == 1, "said once"
        assert failures[0].exc_info is not None
        assert loop.hooks.active is None
        assert not loop.scheduler.enable_priority_preemption
    assert struck or number > 1, "this fault was never met: the test shows nothing"


def test_afterwards_it_is_first_come_first_served(engine: Engine) -> None:
    loop = engine(slots=1, kv_tokens=400)
    for i, tokens in enumerate((30, 20, 10, 5)):
        loop.submit(f"r{i}", prompt=5, tokens=tokens)
    loop.round()
    assert loop.names(loop.scheduler.waiting_queue) == ["r2", "r1", "r0"], "the shortest first"
    put_fault(loop, ("policy", "rank"), 1, ValueError("a fault of ours"))
    loop.submit("r4", prompt=5, tokens=1)
    loop.run()
    assert loop.names(loop.finished) == ["r3", "r0", "r1", "r2", "r4"]
    after = loop.submit("r5", prompt=5, tokens=3)
    assert after.sampling_params.custom_params is None, "our key is still taken off before the request is made"
    loop.run()
    assert after.finished()
    state = SimpleNamespace(internal_state={})
    loop.hooks.get_internal_state(state, loop.scheduler, None)
    assert state.internal_state["laps_sd"].items() >= {"policy": "fcfs", "failed_hook": "calc_priority"}.items()
    assert "bundle" in state.internal_state["laps_sd"], "it still says what it was started with"


def test_a_preempted_request_is_queued_again_however_full_the_queue_is(engine: Engine) -> None:
    """The failure comes between its slot's loss and its way back into the queue."""
    loop = engine(slots=1, kv_tokens=400, max_queued=1)
    victim = loop.submit("long", prompt=5, tokens=50)
    loop.round()
    put_fault(loop, ("policy", "on_preempt"), 1, ValueError("a fault of ours"))
    loop.submit("short", prompt=5, tokens=3)
    loop.run()
    assert loop.aborted == []
    assert victim.retraction_count == 1
    assert loop.names(loop.finished) == ["short", "long"]


def test_a_policy_that_answers_nonsense_is_stopped_before_it_does_harm(engine: Engine) -> None:
    answers = [
        ("victim", lambda *_: SimpleNamespace(rid="nobody")), ("reserve_tokens", lambda *_: float("nan")),
        ("reserve_tokens", lambda *_: -5), ("reserve_tokens", lambda *_: None), ("may_pass", lambda: True),
    ]  # fmt: skip
    for name, nonsense in answers:
        loop = engine(slots=2, kv_tokens=110)
        setattr(loop.hooks.active.side.policy, name, nonsense)
        sent = traffic(loop, random.Random(7))
        loop.run()
        check_answers(loop, sent)
        assert loop.hooks.stood_down is not None, name


def test_a_failure_of_the_tokenizer_process_travels_with_the_next_request(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    from laps_sd.serving.requests.exchange import Attachment, attach

    loop = engine(slots=2, kv_tokens=400)
    loop.submit("before", prompt=5, tokens=20)
    loop.round()
    from sglang.srt.sampling.sampling_params import SamplingParams

    params = SamplingParams(max_new_tokens=3)
    attach(params, Attachment(fallen_back=True))
    loop.scheduler._create_generation_req(SimpleNamespace(rid="x"), "x", "", [1, 2], params, vocab_size=99)
    assert loop.hooks.active is None
    assert loop.hooks.stood_down == "of the tokenizer process"
    loop.run()
    assert loop.names(loop.finished) == ["before"]


# --- several ranks ------------------------------------------------------------------------------------------------


class Store:
    """A dictionary that waits for nobody."""

    def __init__(self) -> None:
        self.notes: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self.notes[key] = value

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        if not set(keys) <= set(self.notes):
            raise TimeoutError

    def get(self, key: str) -> bytes:
        return self.notes[key].encode()


def ranks(size: int, groups: int = 1) -> list[Any]:
    return [SimpleNamespace(tp_size=size, tp_rank=rank, attn_dp_size=groups) for rank in range(size)]


def test_one_rank_needs_nobody() -> None:
    assert all_ranks_fail("rank, ValueError, round 3", ranks(1)[0], lambda: 1 // 0)


def test_ranks_stand_down_only_when_all_of_them_failed_at_the_same_place() -> None:
    store = Store()
    first, second = ranks(2)
    assert not all_ranks_fail("rank, MemoryError, round 3", first, lambda: store), "the other one did not fail"
    assert all_ranks_fail("rank, MemoryError, round 3", second, lambda: store)
    assert not all_ranks_fail("victim, MemoryError, round 3", second, lambda: store), "it failed elsewhere"


def test_groups_of_data_parallel_attention_decide_for_themselves() -> None:
    store = Store()
    assert not all_ranks_fail("a", ranks(4, groups=2)[2], lambda: store)
    assert all_ranks_fail("a", ranks(4, groups=2)[3], lambda: store)
    assert all_ranks_fail("a", ranks(4, groups=4)[0], lambda: store)


def test_a_store_that_is_gone_is_no_agreement() -> None:
    assert not all_ranks_fail("a", ranks(2)[0], lambda: 1 // 0)


def test_the_store_of_torch_is_one_that_all_ranks_share() -> None:
    import torch.distributed as dist

    with_port = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=20))
    other = dist.TCPStore("127.0.0.1", with_port.port, is_master=False, timeout=timedelta(seconds=20))
    started = time.monotonic()
    assert not all_ranks_fail("a", ranks(2)[0], lambda: with_port, timeout_s=0.3)
    assert time.monotonic() - started < 10
    assert all_ranks_fail("a", ranks(2)[1], lambda: other)


def test_a_rank_that_fails_alone_ends_the_server_with_a_sentence(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from laps_sd.serving.hooks import scheduler

    said: list[str] = []

    def refuse(sentence: str) -> None:
        said.append(sentence)
        raise SystemExit(1)

    monkeypatch.setattr(scheduler, "refuse", refuse)
    monkeypatch.setattr(scheduler, "all_ranks_fail", lambda *_: False)
    loop = engine(slots=1, kv_tokens=100)
    put_fault(loop, ("policy", "rank"), 1, MemoryError())
    loop.submit("r", prompt=5, tokens=3)
    with pytest.raises(SystemExit):
        loop.run()
    (sentence,) = said
    assert "one tensor-parallel rank and not on the others" in sentence
    assert "LAPS_SD_DISABLE=1" in sentence
