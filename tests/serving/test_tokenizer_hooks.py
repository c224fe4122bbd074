"""Which requests the hooks in the tokenizer process hand on."""

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


@pytest.mark.parametrize(("rid", "expected"), [("r1", 1), ("HEALTH_CHECK_17", 0)])
def test_sglangs_health_checks_are_nobodys_workload(
    sglang: ModuleType, monkeypatch: pytest.MonkeyPatch, rid: str, expected: int
) -> None:
    from sglang.srt.managers.io_struct import GenerateReqInput

    from laps_sd.serving import tokenizer_hooks

    seen: list[Any] = []
    side = SimpleNamespace(on_tokenized=lambda *args: seen.append(args))
    monkeypatch.setattr(tokenizer_hooks, "_side", side)
    obj = GenerateReqInput(rid=rid, input_ids=[0], sampling_params={"max_new_tokens": 1})
    tokenizer_hooks.create_tokenized_object(object(), SimpleNamespace(tokenizer=None), obj, None, [0])
    assert len(seen) == expected
