"""The prompts that the project wrote: many, different, of all kinds everywhere, the same for one seed."""

from collections import Counter

import pytest

from laps_sd.data import groups_of
from laps_sd.data.prompts import KINDS, generate_prompts
from laps_sd.errors import InputError


def test_two_thousand_prompts_are_all_different():
    prompts = generate_prompts(2000, seed=0)
    assert len({prompt.prompt for prompt in prompts}) == 2000
    assert len({prompt.prompt_id for prompt in prompts}) == 2000


def test_every_stretch_holds_all_kinds_so_that_a_cut_run_covers_them():
    prompts = generate_prompts(2000, seed=3)
    assert len(KINDS) >= 25
    for start in range(0, 500, 100):
        assert set(Counter(p.category for p in prompts[start : start + 100])) == set(KINDS)


def test_a_seed_fixes_the_prompts_and_another_one_changes_them():
    assert generate_prompts(60, seed=1) == generate_prompts(60, seed=1)
    assert generate_prompts(60, seed=1) == generate_prompts(200, seed=1)[:60]
    assert generate_prompts(60, seed=1) != generate_prompts(60, seed=2)


def test_prompts_about_one_thing_share_a_group_and_groups_are_many():
    prompts = generate_prompts(1500, seed=0)
    assert len({prompt.group for prompt in prompts}) > 800
    about_whales = [p for p in generate_prompts(200, seed=0, kinds=["essay"]) if "whales" in p.prompt]
    assert len(about_whales) > 1
    assert len({p.group for p in about_whales}) == 1


def test_several_scripts_are_among_them():
    text = "".join(prompt.prompt for prompt in generate_prompts(1500, seed=0))
    assert {"雨", "ш", "ا", "¿", "ü"} <= set(text)


def test_kinds_can_be_chosen_and_run_out():
    assert {p.category for p in generate_prompts(20, seed=0, kinds=["yes_no", "list"])} == {"yes_no", "list"}
    with pytest.raises(InputError, match="different prompts, 5000 were asked for"):
        generate_prompts(5000, seed=0, kinds=["yes_no"])
    with pytest.raises(InputError, match=r"unknown kind of prompt \['nonsense'\]"):
        generate_prompts(5, seed=0, kinds=["nonsense"])


def test_the_built_in_groups_are_not_joined_into_a_few(make_record):
    records = [
        make_record(p.prompt_id, prompt=p.prompt, group=p.group, category=p.category)
        for p in generate_prompts(700, seed=0)
    ]
    assert len(set(groups_of(records).tolist())) > 400
