"""Finished requests whose lengths follow their prompts, drawn anew for each seed."""

import zlib
from collections.abc import Callable

import numpy as np
import pytest

from laps_sd.data import PromptRequest, RequestRecord
from laps_sd.data.prompts import generate_prompts


def draw_records(n: int, seed: int = 0, *, noise: float = 0.3, cap: int | None = None) -> list[RequestRecord]:
    """Each kind of prompt has its own typical length, 8 to 600 tokens; a cap cuts (and is known everywhere)."""
    random = np.random.default_rng(seed)
    records = []
    for prompt in generate_prompts(n, seed):
        place = zlib.crc32((prompt.category or "").encode()) % 1000 / 1000
        length = max(1, round(8 * 75**place * float(np.exp(noise * random.standard_normal()))))
        cut = cap is not None and length > cap
        records.append(
            RequestRecord(
                request_id=prompt.prompt_id,
                prompt=prompt.prompt,
                prompt_tokens=max(1, len(prompt.prompt) // 4),
                output_tokens=cap if cut and cap is not None else length,
                finish_reason="length" if cut else "stop",
                max_new_tokens=cap,
                model="small",
                category=prompt.category,
                group=prompt.group,
            )
        )
    return records


@pytest.fixture(scope="session")
def draw() -> Callable[..., list[RequestRecord]]:
    return draw_records


@pytest.fixture(scope="session")
def records() -> list[RequestRecord]:
    return draw_records(240)


@pytest.fixture(scope="session")
def requests(records: list[RequestRecord]) -> list[PromptRequest]:
    return [PromptRequest.from_record(r) for r in records]


@pytest.fixture(scope="session")
def tokens(records: list[RequestRecord]) -> np.ndarray:
    return np.array([r.output_tokens for r in records], dtype=float)
