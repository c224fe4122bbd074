"""Every constant is named, documented and checked."""

from dataclasses import replace

import pytest

from laps_sd.scheduler import Settings


def test_every_setting_is_documented():
    text = Settings.__doc__ or ""
    assert [name for name in Settings.names() if name not in text] == []
    assert "patience" in Settings.names()


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
    paper = Settings.paper()
    assert (paper.index, paper.seeded, paper.trust) == ("attained", False, False)
