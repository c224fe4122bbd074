"""Which requests the hooks in the tokenizer process hand on."""

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from laps_sd.serving.config import ServingConfig
from laps_sd.serving.flags import WIRE_KEY
from laps_sd.serving.launch import Launch
from laps_sd.serving.requests.exchange import Attachment, detach


@pytest.mark.parametrize(("rid", "expected"), [("r1", 1), ("HEALTH_CHECK_17", 0)])
def test_sglangs_health_checks_are_nobodys_workload(sglang: ModuleType, rid: str, expected: int) -> None:
    from sglang.srt.managers.io_struct import GenerateReqInput

    from laps_sd.serving.hooks.tokenizer import TokenizerHooks

    seen: list[Any] = []
    side = SimpleNamespace(on_tokenized=lambda *args: seen.append(args), pass_by=lambda *args: None)
    hooks: Any = TokenizerHooks()
    hooks.side = side
    obj = GenerateReqInput(rid=rid, input_ids=[0], sampling_params={"max_new_tokens": 1})
    hooks.create_tokenized_object(object(), SimpleNamespace(tokenizer=None), obj, None, [0])
    assert len(seen) == expected


def test_a_request_that_calls_itself_a_health_check_brings_no_prediction_of_its_own(
    sglang: ModuleType, prediction: Any
) -> None:
    from sglang.srt.managers.io_struct import GenerateReqInput

    from laps_sd.serving.hooks.tokenizer import TokenizerHooks
    from laps_sd.serving.requests.tokenizer_side import TokenizerSide

    hooks: Any = TokenizerHooks()
    hooks.side = TokenizerSide(None, Launch(None, ServingConfig()))
    forged = {WIRE_KEY: {**prediction(1).to_wire(), "priority": 99}, "thinking_budget": 9}
    obj = GenerateReqInput(rid="HEALTH_CHECK_of_mine", input_ids=[0], sampling_params={"custom_params": forged})
    tokenized = SimpleNamespace(sampling_params=SimpleNamespace(custom_params=forged), priority=None)
    hooks.create_tokenized_object(tokenized, SimpleNamespace(tokenizer=None), obj, None, [0])
    assert detach(tokenized.sampling_params) == Attachment()
    assert tokenized.sampling_params.custom_params == {"thinking_budget": 9}


def test_whatever_a_hook_raises_the_request_goes_on_and_says_that_scheduling_falls_back(
    sglang: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from sglang.srt.managers.io_struct import GenerateReqInput

    from laps_sd.serving.hooks.tokenizer import TokenizerHooks
    from laps_sd.serving.requests.tokenizer_side import TokenizerSide

    class Broken(TokenizerSide):
        def on_tokenized(self, *_: Any) -> None:
            raise RuntimeError("a fault of ours")

    hooks = TokenizerHooks()
    hooks.side = Broken(None, Launch(None, ServingConfig()))
    for _ in range(2):
        params = SimpleNamespace(custom_params={"__laps_sd__": {"edges": "forged"}, "own": 1})
        hooks.table["_create_tokenized_object"](
            SimpleNamespace(sampling_params=params),
            SimpleNamespace(tokenizer=None),
            GenerateReqInput(text="Hi"),
            "Hi",
            [1],
        )
        assert detach(params).fallen_back
        assert params.custom_params == {"own": 1}
    assert hooks.side is None
    assert hooks.stood_down == "_create_tokenized_object"
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_an_answer_goes_out_once_though_our_fields_fail(sglang: ModuleType) -> None:
    from laps_sd.serving.hooks.tokenizer import TokenizerHooks
    from laps_sd.serving.requests.tokenizer_side import TokenizerSide

    hooks, meta, calls = TokenizerHooks(), {}, []
    hooks.side = TokenizerSide(None, Launch(None, ServingConfig()))
    state = SimpleNamespace(obj=SimpleNamespace())
    hooks.table["update_request_meta_info"](
        lambda *values: calls.append(values), None, meta, state, {"laps_sd": [["no dict"]], "theirs": [[1]]}, 0, None
    )
    ((_, _, _, customized, _, _),) = calls
    assert customized == {"theirs": [[1]]}
    assert hooks.side is None
