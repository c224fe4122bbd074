"""Records and files for the tests of this room."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from laps_sd.data import RequestRecord

MakeRecord = Callable[..., RequestRecord]


@pytest.fixture
def make_record() -> MakeRecord:
    """A valid record with some fields of your own."""

    def make(request_id: str = "r1", **fields: Any) -> RequestRecord:
        return RequestRecord(
            **{"request_id": request_id, "prompt_tokens": 5, "output_tokens": 9, "finish_reason": "stop", **fields}
        )

    return make


@pytest.fixture
def good_row() -> dict[str, Any]:
    """A row of JSON lines that is a full, valid record."""
    return {
        "request_id": "r1",
        "prompt": "Name three rivers.",
        "prompt_tokens": 12,
        "output_tokens": 40,
        "finish_reason": "stop",
        "max_new_tokens": 64,
        "temperature": 0.0,
        "max_correct_drafts": 3,
        "verify_steps": 6,
        "correct_drafts_histogram": [2, 1, 3],
        "e2e_s": 1.5,
    }


@pytest.fixture
def write_lines(tmp_path: Path) -> Callable[..., Path]:
    """Write values as JSON lines (text goes as it is) and return the file."""

    def write(*lines: Any, name: str = "trace.jsonl") -> Path:
        path = tmp_path / name
        path.write_bytes(
            b"".join(
                (line if isinstance(line, bytes) else json.dumps(line, ensure_ascii=False).encode()) + b"\n"
                for line in lines
            )
        )
        return path

    return write
