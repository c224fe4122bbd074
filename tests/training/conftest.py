"""Finished requests with lengths that follow their prompts, and a private MLflow store."""

import zlib

import numpy as np
import pytest

from laps_sd.data import RequestRecord, write_records
from laps_sd.data.prompts import generate_prompts


def draw_records(n: int, seed: int = 0) -> list[RequestRecord]:
    """Each kind of prompt has its own typical length, 8 to 600 tokens."""
    random = np.random.default_rng(seed)
    records = []
    for prompt in generate_prompts(n, seed):
        place = zlib.crc32((prompt.category or "").encode()) % 1000 / 1000
        length = max(1, round(8 * 75**place * float(np.exp(0.3 * random.standard_normal()))))
        steps = max(1, length // 2)
        records.append(
            RequestRecord(
                request_id=prompt.prompt_id,
                prompt=prompt.prompt,
                prompt_tokens=max(1, len(prompt.prompt) // 4),
                output_tokens=length,
                finish_reason="stop",
                model="small",
                draft="ngram",
                max_correct_drafts=3,
                verify_steps=steps,
                correct_drafts_histogram=(steps, 0, 0, 0),
                accept_lengths=(1,) * steps,
                category=prompt.category,
                group=prompt.group,
            )
        )
    return records


@pytest.fixture(scope="session")
def records():
    return draw_records(100)


@pytest.fixture(scope="session")
def trace(records, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "trace.jsonl"
    write_records(path, records)
    return path


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """An SQLite store that the whole session shares: making one takes seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}"


@pytest.fixture(autouse=True)
def _no_store_of_the_user(monkeypatch, tmp_path):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
