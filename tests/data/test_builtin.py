"""The trace that ships with the package is what it says it is."""

from collections import Counter

import pytest

from laps_sd.data import builtin_trace, group_folds
from laps_sd.data.builtin import DRAFTS, MAX_NEW_TOKENS, PROMPTS, SEED, builtin_path, known_draft
from laps_sd.data.prompts import KINDS, SOURCE, generate_prompts
from laps_sd.errors import InputError

ATLEAST = {"ngram": 400, "standalone": 150}
MOST_CORRECT = {"ngram": 7, "standalone": 3}


@pytest.fixture(params=DRAFTS)
def draft(request):
    return request.param


def test_there_are_enough_requests_of_every_kind(draft):
    records = builtin_trace(draft)
    kinds = Counter(record.category for record in records)
    assert len(records) >= ATLEAST[draft]
    assert set(kinds) == set(KINDS)
    assert min(kinds.values()) >= 4


def test_the_prompts_are_those_of_the_generator(draft):
    first, count = PROMPTS[draft]
    own = {prompt.prompt_id: prompt for prompt in generate_prompts(first + count, SEED)[first:]}
    for record in builtin_trace(draft):
        prompt = own[record.request_id]
        assert (record.prompt, record.group, record.category, record.source) == (
            prompt.canonical.text,
            prompt.group,
            prompt.category,
            SOURCE,
        )


def test_lengths_are_the_model_s_own_and_the_cap_is_censored(draft):
    records = builtin_trace(draft)
    assert all(record.censored == (record.output_tokens == MAX_NEW_TOKENS) for record in records)
    assert {record.max_new_tokens for record in records} == {MAX_NEW_TOKENS}
    ended = sorted(record.output_tokens for record in records if not record.censored)
    assert len(ended) > len(records) / 2
    assert ended[len(ended) // 10] < 15
    assert ended[-len(ended) // 10] > 150


def test_accepted_drafts_account_for_the_tokens(draft):
    accept_lengths = []
    for record in builtin_trace(draft):
        assert record.max_correct_drafts == MOST_CORRECT[draft]
        if record.correct_drafts_histogram is None:  # ended with its first token
            assert record.output_tokens == 1
            continue
        emitted = 1 + sum((k + 1) * steps for k, steps in enumerate(record.correct_drafts_histogram))
        # The first token comes from the prefill; the last step may have been cut by the end of the answer.
        assert record.output_tokens <= emitted <= record.output_tokens + MOST_CORRECT[draft]
        accept_lengths.append(record.accept_length)
    assert max(accept_lengths) > 1.5 * min(accept_lengths)  # acceptance differs from prompt to prompt


def test_times_are_known_and_consistent(draft):
    for record in builtin_trace(draft):
        assert 0 <= record.queue_s <= record.ttft_s <= record.e2e_s
        assert record.arrival_s >= 0


def test_no_prompt_is_in_both_parts_and_folds_are_possible():
    records = builtin_trace()
    assert len({record.request_id for record in records}) == len(records)
    assert len({record.prompt for record in records}) == len(records)
    assert len(group_folds(records, 5, seed=0)) == 5


def test_the_files_are_small_and_hold_no_path_of_a_machine(draft):
    assert builtin_path(draft).stat().st_size < 500_000
    assert not any("/" in (record.model or "") + (record.draft or "") for record in builtin_trace(draft))


def test_an_unknown_draft_is_refused():
    with pytest.raises(InputError, match="there are ngram and standalone"):
        known_draft("eagle")
