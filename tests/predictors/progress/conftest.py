"""Finished requests whose prompts say nothing of their length, and whose answers announce it."""

from collections.abc import Callable

import numpy as np
import pytest

from laps_sd.data import RequestRecord
from laps_sd.data.progress.counting import COUNTERS, checkpoints_below

TABLE = "v1-0123456789abcdef"


def counts_of(length: int, checkpoint: int, told: bool, random: np.random.Generator) -> list[int]:
    """Counts of an answer that has produced ``checkpoint`` tokens; ``told``: it announces its length."""
    counts = dict.fromkeys(COUNTERS, 0)
    counts["chars"] = 4 * checkpoint
    counts["sentence_end"] = int(random.integers(checkpoint // 16 + 1))
    announced = length / 20 * float(np.exp(0.3 * random.standard_normal()))
    counts["announced_items"] = min(round(announced), 50) if told else int(random.integers(50))
    return list(counts.values())


def draw_counted(n: int, seed: int = 0, *, told: bool = True, cap: int | None = None) -> list[RequestRecord]:
    """Lengths are log-normal around 150 tokens; a cap cuts."""
    random = np.random.default_rng(seed)
    records = []
    for i in range(n):
        length = max(1, round(150 * float(np.exp(0.7 * random.standard_normal()))))
        produced = length if cap is None else min(length, cap)
        counts = [x for c in checkpoints_below(produced) for x in counts_of(length, c, told, random)]
        steps = max((produced - 1) // 2, 1)
        records.append(
            RequestRecord(
                request_id=f"r{i}",
                prompt=f"Question of kind {chr(97 + i % 26)}{chr(97 + i // 26 % 26)}{chr(97 + i // 676)} please",
                prompt_tokens=9,
                output_tokens=produced,
                finish_reason="stop" if produced == length else "length",
                max_new_tokens=cap,
                accept_lengths=(2,) * steps,
                verify_steps=steps,
                progress=tuple(counts),
                progress_table=TABLE,
            )
        )
    return records


@pytest.fixture(scope="session")
def counted_records() -> Callable[..., list[RequestRecord]]:
    return draw_counted
