"""Penalties of a resumed answer are what they would be had the request kept its slot, by SGLang's own counting."""

import inspect
import re
from array import array
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

VOCABULARY = 12


def request_of(output: list[int], **params: Any) -> Any:
    plain = {"frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0, "min_new_tokens": 0}
    return SimpleNamespace(
        origin_input_ids=array("q", [3, 7]),
        output_ids=array("q", output),
        sampling_params=SimpleNamespace(**plain | params, stop_token_ids={1}),
        eos_token_ids={2},
        tokenizer=SimpleNamespace(additional_stop_token_ids=None, eos_token_id=2),
    )


def batch_of(reqs: list[Any], *, overlap: bool = False, algorithm: str | None = None) -> Any:
    from sglang.srt.sampling import penaltylib
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    class Batch(SimpleNamespace):
        __slots__ = ("__weakref__",)

    batch = Batch(reqs=reqs, device="cpu", enable_overlap=overlap)
    batch.spec_algorithm = SpeculativeAlgorithm.from_string(algorithm)
    kinds = {
        penaltylib.BatchedFrequencyPenalizer, penaltylib.BatchedPresencePenalizer,
        penaltylib.BatchedRepetitionPenalizer, penaltylib.BatchedMinNewTokensPenalizer,
    }  # fmt: skip
    orchestrator = penaltylib.BatchedPenalizerOrchestrator(VOCABULARY, batch, kinds)
    batch.sampling_info = SimpleNamespace(penalizer_orchestrator=orchestrator)
    return batch


def logits(batch: Any) -> Any:
    import torch

    values = torch.linspace(-2, 3, VOCABULARY).repeat(len(batch.reqs), 1)
    batch.sampling_info.penalizer_orchestrator.apply(values)
    return values


def undisturbed(reqs: list[Any], *, overlap: bool) -> Any:
    """A batch that never lost anybody: SGLang counts one token of each request in every step.

    As its own `ScheduleBatch.cumulate_penalty_output_tokens`: under overlap scheduling a step late.
    """
    import torch

    batch = batch_of(reqs)
    for step in range(len(reqs[0].output_ids)):
        last = [
            (req.output_ids[step - 1] if step else req.origin_input_ids[-1]) if overlap else req.output_ids[step]
            for req in reqs
        ]
        batch.sampling_info.penalizer_orchestrator.cumulate_output_tokens(torch.tensor(last))
    return batch


ASKED = st.fixed_dictionaries(
    {},
    optional={
        "frequency_penalty": st.floats(-2, 2, width=16), "presence_penalty": st.floats(-2, 2, width=16),
        "repetition_penalty": st.floats(0.5, 2, width=16), "min_new_tokens": st.integers(0, 30),
    },
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(ASKED, min_size=1, max_size=4), st.integers(1, 25), st.booleans(), st.randoms(use_true_random=False))
def test_a_resumed_answer_is_penalized_as_one_that_kept_its_slot(
    sglang: ModuleType, asked: list[dict[str, Any]], length: int, overlap: bool, rng: Any
) -> None:
    from laps_sd.serving.hooks.penalties import restore_penalties

    reqs = [request_of([rng.randrange(VOCABULARY) for _ in range(length)], **params) for params in asked]
    resumed = batch_of(reqs, overlap=overlap)
    restore_penalties(resumed)
    assert (logits(resumed) == logits(undisturbed(reqs, overlap=overlap))).all(), "to the last bit"


def test_who_is_new_in_the_batch_begins_at_zero(sglang: ModuleType) -> None:
    from laps_sd.serving.hooks.penalties import restore_penalties

    old, new = request_of([5, 5, 6], frequency_penalty=1.0), request_of([], frequency_penalty=1.0)
    batch = batch_of([new, old])
    untouched = logits(batch_of([new]))[0]
    restore_penalties(batch)
    rows = logits(batch)
    assert (rows[0] == untouched).all()
    assert (untouched - rows[1]).tolist() == pytest.approx([0] * 5 + [2, 1] + [0] * 5)


def test_with_drafts_nothing_is_claimed_to_be_restored(sglang: ModuleType) -> None:
    from laps_sd.serving.hooks.penalties import restore_penalties

    batch = batch_of([request_of([5, 5], frequency_penalty=1.0)], algorithm="NGRAM")
    before = logits(batch)
    restore_penalties(batch)
    assert (logits(batch) == before).all()


def test_all_penalties_that_sglang_has_are_known(sglang: ModuleType) -> None:
    from sglang.srt.sampling import penaltylib
    from sglang.srt.sampling.penaltylib.orchestrator import _BatchedPenalizer

    from laps_sd.serving.hooks.penalties import FEEDS

    kinds = [kind for kind in vars(penaltylib).values() if isinstance(kind, type)]
    assert set(FEEDS) == {kind for kind in kinds if issubclass(kind, _BatchedPenalizer)}


def test_sglang_applies_penalties_in_the_order_of_a_set(sglang: ModuleType) -> None:
    """When this fails it is mended: say so in docs/serving.md, and mix penalties in benchmarks/soak_questions.py."""
    from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo

    assert re.search(r"penalizers=\{\s*penaltylib\.", inspect.getsource(SamplingBatchInfo.from_schedule_batch))
