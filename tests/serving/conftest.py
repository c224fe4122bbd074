"""What the serving tests share: SGLang importable on the CPU stand-in, and requests as its scheduler holds them."""

import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from laps_sd.scheduler import Prediction, SurvivalCurve
from laps_sd.serving.cpu import launch


@pytest.fixture(scope="session")
def sglang() -> ModuleType:
    """The installed SGLang with its scheduler and tokenizer modules imported."""
    with launch.importable(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import sglang
        import sglang.srt.managers.scheduler
        import sglang.srt.managers.tokenizer_manager
        import sglang.srt.server_args
    return sglang


@pytest.fixture
def parse(sglang: ModuleType) -> Callable[..., Namespace]:
    """``parse("--pp-size", "2")``: SGLang's own parser with our flags."""
    from sglang.srt.server_args import ServerArgs

    from laps_sd.serving.flags import add_flags

    def parsed(*args: str) -> Namespace:
        parser = ArgumentParser()
        ServerArgs.add_cli_args(parser)
        add_flags(parser)
        return parser.parse_args(["--model-path", "dummy", *args])

    return parsed


@pytest.fixture
def prediction() -> Callable[..., Prediction]:
    """``prediction(40)``: about 40 tokens, 2.5 per verify step."""

    def make(tokens: float, accept_length: float = 2.5, strength: float = 16.0) -> Prediction:
        return Prediction(SurvivalCurve.lognormal(tokens, 0.3), accept_length, strength)

    return make


@pytest.fixture
def make_req() -> Callable[..., Any]:
    """``make_req("a", prompt=10, limit=100)``: the attributes of SGLang's ``Req`` that the scheduler side reads."""

    def make(rid: str, *, prompt: int = 10, limit: int = 100, priority: int | None = None) -> Any:
        return SimpleNamespace(
            rid=rid,
            origin_input_ids=[1] * prompt,
            output_ids=[],
            sampling_params=SimpleNamespace(max_new_tokens=limit),
            priority=priority,
            num_matched_prefix_tokens=0,
            prefix_len=0,
            time_stats=SimpleNamespace(prefill_finished_time=0.0),
        )

    return make
