"""A prompt that is sent again and again, as a health probe is, decides nothing for the others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps_sd.data import RequestRecord, split
from laps_sd.predictors import fit_bundle
from laps_sd.predictors.fit import thinned
from laps_sd.training.evaluation.finished import predict_finished


def probe(i: int, tokens: int = 3, prompt: str = "Ping? Say pong.") -> RequestRecord:
    return RequestRecord(
        request_id=f"probe{i}", prompt=prompt, prompt_tokens=9, output_tokens=tokens, finish_reason="stop", model="m"
    )


def coverage(records: list[RequestRecord], unseen: list[RequestRecord]) -> float:
    curves = [p.length for p in predict_finished(fit_bundle(records), unseen).predictions]
    inside = [
        np.floor(c.quantile(0.1)) <= r.output_tokens <= np.ceil(c.quantile(0.9))
        for c, r in zip(curves, unseen, strict=True)
    ]
    return float(np.mean(inside))


def test_intervals_cover_with_a_probe_in_the_training_data_what_they_cover_without(draw):
    records, unseen = draw(120, seed=1), draw(300, seed=2)
    probes = [probe(i) for i in range(480)]
    assert coverage(records, unseen) == pytest.approx(0.8, abs=0.07)
    assert coverage([*records, *probes], unseen) == pytest.approx(0.8, abs=0.07)


def test_a_probe_with_a_number_in_it_is_one_prompt_too(draw):
    probes = [probe(i, prompt=f"Ping {i}? Say pong.") for i in range(400)]
    assert len(thinned([*draw(100), *probes])) == 105


def test_records_without_heavy_repeats_are_all_used(records):
    assert thinned(records) == records
    alike = [probe(i, prompt=f"question {word}") for i in range(40) for word in ("one", "two", "three")]
    assert thinned(alike) == alike


def test_what_is_kept_of_a_prompt_spans_its_lengths(draw):
    probes = [probe(i, tokens=i + 1) for i in range(400)]
    kept = [r.output_tokens for r in thinned([*draw(100), *probes]) if r.prompt == probes[0].prompt]
    assert (min(kept), max(kept)) == (1, 400)
    assert np.mean(kept) == pytest.approx(200.5, rel=0.02)


def test_too_few_prompts_to_choose_from_are_all_kept():
    few = [probe(i) for i in range(17)] + [probe(99, prompt="another"), probe(98, prompt="one more")]
    assert thinned(few) == few


@given(st.lists(st.integers(1, 300), min_size=1, max_size=12))
def test_a_prompt_counts_at_most_five_times_as_often_as_the_usual_one(counts):
    rows = [probe(i * 1000 + k, prompt=f"prompt {'x' * i}") for i, n in enumerate(counts) for k in range(n)]
    kept = thinned(rows)
    for i, n in enumerate(counts):
        found = sum(r.prompt == f"prompt {'x' * i}" for r in kept)
        assert found == n or found == np.ceil(5 * np.median(counts))
    assert [r.request_id for r in kept] == [r.request_id for r in rows if r in kept]


def test_validation_takes_a_fifth_of_the_groups(draw):
    records = [*draw(120), *(probe(i) for i in range(480))]
    groups = len({r.group or r.prompt for r in records})
    for seed in range(4):
        _, test = split(records, 0.2, seed, of_groups=True)
        assert len({r.group or r.prompt for r in test}) == pytest.approx(groups / 5, abs=4)
