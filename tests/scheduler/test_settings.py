"""Every constant is named, documented and checked."""

from dataclasses import fields, replace

import pytest

from laps_sd.declared import declared
from laps_sd.scheduler import CostModel, PosteriorSettings, Settings
from laps_sd.scheduler.settings import PRESETS


@pytest.mark.parametrize("kind", [Settings, PosteriorSettings, CostModel])
def test_every_setting_is_declared_with_its_meaning(kind):
    told = {name: setting.meaning for name, _, setting in declared(kind)}
    assert list(told) == [field.name for field in fields(kind)]
    assert all(told.values())


def test_numbers_have_a_range():
    free = [name for name, inner, setting in declared(Settings) if inner in (int, float) and not setting.range]
    assert free == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("factor", 1.0),
        ("factor", float("nan")),
        ("levels", 0),
        ("first_threshold", 0),
        ("margin", 0.5),
        ("max_preemptions", -1),
        ("patience", -1),
        ("kv_quantile", 1.0),
        ("refresh_steps", 0),
        ("accept_length", 0.9),
        ("memory", 1),
        ("levels", 2.5),
        ("margin", "1.2"),
        ("preemption", 1),
        ("output_length", float("inf")),
    ],
)
def test_a_setting_out_of_bounds_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=name):
        replace(Settings(), **{name: value})


def test_an_unknown_index_is_refused():
    with pytest.raises(ValueError, match="index must be"):
        Settings(index="best")


def test_trust_needs_a_range():
    with pytest.raises(ValueError, match="trust_low must be below"):
        Settings(trust_low=0.5, trust_high=0.5)


def test_the_paper_s_preset_is_unseeded_and_ranks_by_attained_service():
    paper = replace(Settings(), **PRESETS["paper"])
    assert (paper.index, paper.seeded, paper.trust) == ("attained", False, False)
