"""A small file of each format; a format that is added needs one here."""

import json
from pathlib import Path

import pytest

_FIXTURES = Path(__file__).parents[1] / "fixtures"
_RECORD = {"request_id": "r", "prompt_tokens": 3, "output_tokens": 5, "finish_reason": "stop"}
_CHOICE = {"index": 0, "new_tokens": [3], "decoding_steps": [2], "accept_lengths": [2, 1], "wall_time": [0.1]}
_CHAT = {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good day"}]}


@pytest.fixture(scope="session")
def samples() -> dict[str, bytes]:
    """The bytes of a good file, by format."""
    return {
        "sglang-metrics": (_FIXTURES / "sglang-request-metrics-20261201_23.log").read_bytes(),
        "sglang-bench": (_FIXTURES / "sglang-bench.jsonl").read_bytes(),
        "spec-bench": json.dumps({"question_id": 1, "choices": [_CHOICE]}).encode() + b"\n",
        "arrivals": b"arrival_s,input_tokens,output_tokens\n0.0,3,4\n1.5,4,5\n",
        "chat": json.dumps(_CHAT).encode() + b"\n",
        "records": json.dumps(_RECORD).encode() + b"\n",
    }
