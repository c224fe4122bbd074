"""Splits never let near-duplicate prompts straddle train and test."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps_sd.data import RequestRecord, group_folds, group_names, groups_of, split
from laps_sd.data.groups.split import normalised
from laps_sd.errors import InputError

LONG = (
    "Please write a short report on the {} of the old town library and explain to the council why it should stay open"
)


def record(i, prompt=None, group=None):
    return RequestRecord(
        request_id=str(i), prompt=prompt, group=group, prompt_tokens=1, output_tokens=1, finish_reason="stop"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("List 5 fruits.", "List 5 fruits."),
        ("List 5 fruits.", "  list 5 FRUITS!!"),
        ("List 5 fruits.", "List 12 fruits."),
        ("Café au lait?", "Cafe\u0301 au lait"),
        (LONG.format("history"), LONG.format("garden")),
        (LONG.format("history"), "Hi! " + LONG.format("history") + " Thank you."),
        ("?!", "?!"),
    ],
)
def test_near_duplicates_share_a_group(one, other):
    assert groups_of([record(0, one), record(1, "Something else entirely"), record(2, other)]).tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("List 5 fruits.", "List 5 vegetables."),
        ("What is the capital of France?", "What is the capital of Peru?"),
        (LONG.format("history"), "Explain to the council why the town needs a new bridge over the river this year"),
        ("?!", "!!!"),
        (None, None),
    ],
)
def test_different_prompts_do_not(one, other):
    assert groups_of([record(0, one), record(1, other)]).tolist() == [0, 1]


def test_a_named_group_is_trusted_over_similar_words():
    a, b = (record(i, LONG.format(word), group=word) for i, word in enumerate(("history", "garden")))
    assert groups_of([a, b]).tolist() == [0, 1]


def test_the_same_words_belong_together_even_in_two_named_groups():
    rows = [
        record(0, "Same words", "a"),
        record(1, "Other", "a"),
        record(2, "same WORDS.", "b"),
        record(3, "More", "b"),
    ]
    assert groups_of(rows).tolist() == [0, 0, 0, 0]


def test_a_group_is_named_by_its_first_record():
    rows = [record(0, "Same words", "a"), record(1, "same WORDS.", "b"), record(2, "More", "b"), record(3, "Else", "c")]
    assert group_names(rows) == ["group:a", "group:a", "group:a", "group:c"]


def test_chains_of_near_duplicates_are_one_group():
    words = [f"word{chr(97 + i)}" for i in range(26)]
    rows = [record(i, " ".join(words[: 20 + i])) for i in range(6)]
    assert set(groups_of(rows).tolist()) == {0}


ROWS = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["x", "y", "z", None])), min_size=12, max_size=60
).map(lambda drawn: [record(i, f"prompt {p}", g) for i, (p, g) in enumerate(drawn)])


@given(rows=ROWS, seed=st.integers(0, 99))
@settings(deadline=None)
def test_no_group_and_no_prompt_stands_on_both_sides(rows, seed):
    groups = groups_of(rows)
    if len(set(groups.tolist())) < 2:
        with pytest.raises(InputError, match="at least two groups"):
            split(rows, 0.3, seed)
        return
    train, test = split(rows, 0.3, seed)
    assert train
    assert test
    assert sorted(r.request_id for r in train + test) == sorted(r.request_id for r in rows)
    assert not {normalised(r.prompt) for r in train} & {normalised(r.prompt) for r in test}
    assert not {r.group for r in train if r.group} & {r.group for r in test if r.group}
    assert split(rows, 0.3, seed) == (train, test)


@given(rows=ROWS, k=st.integers(2, 4), seed=st.integers(0, 99))
@settings(deadline=None)
def test_folds_partition_the_rows_and_keep_groups_whole(rows, k, seed):
    groups = groups_of(rows)
    if len(set(groups.tolist())) < k:
        with pytest.raises(InputError, match="there are"):
            group_folds(rows, k, seed)
        return
    folds = group_folds(rows, k, seed)
    assert sorted(np.concatenate(folds).tolist()) == list(range(len(rows)))
    assert all(len(fold) for fold in folds)
    owners = [{int(groups[row]) for row in fold} for fold in folds]
    assert sum(map(len, owners)) == len(set(groups.tolist()))


def test_folds_and_splits_have_the_sizes_asked_for():
    rows = [record(i, f"prompt {chr(97 + i % 26)}{chr(97 + i // 26)}") for i in range(500)]
    assert {len(fold) for fold in group_folds(rows, 5, seed=1)} == {100}
    assert len(split(rows, 0.2, seed=1)[1]) == 100


@pytest.mark.parametrize("share", [0, 1, -0.5])
def test_a_share_outside_of_0_and_1_is_refused(share):
    with pytest.raises(InputError, match="between 0 and 1"):
        split([record(0, "a"), record(1, "b")], share, 0)
