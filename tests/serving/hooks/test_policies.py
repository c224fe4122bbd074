"""Every policy that can be served ranks in SGLang's own loop, and the server says which one does."""

import random
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import pytest

from laps_sd.serving.config import servable_policies


def served(engine: Any, name: str, **size: int) -> Any:
    return engine(config={"policy": {"name": name}}, **size)


@pytest.mark.parametrize("name", servable_policies())
def test_under_every_policy_everybody_ends_and_no_token_leaks(engine: Any, name: str) -> None:
    rng = random.Random(name)
    it = served(engine, name, slots=3, kv_tokens=400, chunk=16)
    reqs = []
    for i in range(25):
        tokens = rng.choice([2, 5, 20, 60])
        predicted = rng.choice([-1, None, 3, 90])
        prompt = rng.randint(1, 40)
        req = it.submit(f"r{i}", prompt=prompt, tokens=tokens, limit=rng.choice([tokens, 100]), predicted=predicted)
        reqs.append((req, tokens))
        for _ in range(rng.randint(0, 6)):
            it.round()
    it.run()
    assert [len(req.output_ids) for req, _ in reqs] == [tokens for _, tokens in reqs]
    assert it.allocator.available_size() + it.tree.evictable_size() == it.kv_tokens
    assert it.hooks.active.side._waiting == it.hooks.active.side._running == {}


def test_the_policy_that_is_named_decides(engine: Any) -> None:
    ended = {}
    for name in ("fcfs", "sjf-predicted", "las"):
        it = served(engine, name, slots=1, kv_tokens=2000)
        it.submit("running", prompt=5, tokens=30)
        for _ in range(5):
            it.round()
        it.submit("long", prompt=5, tokens=60)
        it.submit("short", prompt=5, tokens=8)
        it.run()
        ended[name] = it.names(it.finished)
    assert ended["fcfs"] == ["running", "long", "short"]
    assert ended["sjf-predicted"] == ["running", "short", "long"]
    assert ended["las"][0] == "short", "who has had least goes first, and takes the slot"


@pytest.mark.parametrize("name", ["laps-sd", "las"])
def test_log_and_server_info_say_what_ranks(engine: Any, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    it = served(engine, name, slots=1, kv_tokens=200)
    it.scheduler.internal_state = SimpleNamespace(
        get_internal_state=lambda asked: SimpleNamespace(internal_state={"startup_time": 3})
    )
    said = it.scheduler.get_internal_state(None).internal_state
    ours = {"policy": name, "bundle": "", "version": "", "run": "", "sglang": version("sglang")}
    assert said == {"startup_time": 3, "laps_sd": ours}
    line = f"laps-sd: requests are ranked by {name}, without a bundle, in SGLang {version('sglang')}"
    assert [record.message for record in caplog.records if "ranked" in record.message] == [line]
