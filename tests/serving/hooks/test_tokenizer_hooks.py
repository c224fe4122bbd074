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
