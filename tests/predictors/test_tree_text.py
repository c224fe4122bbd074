"""Trees are followed only where they lead somewhere: what LightGBM's own reader believes is refused before it."""

import re

import lightgbm as lgb
import numpy as np
import pytest

from laps_sd.predictors.tree_text import checked_text
from laps_sd.predictors.trees import Trees

ROWS = np.random.default_rng(0).normal(size=(400, 5))


@pytest.fixture(scope="module")
def text() -> str:
    data = lgb.Dataset(ROWS, label=ROWS[:, 0] + ROWS[:, 1] ** 2)
    return lgb.train({"verbosity": -1, "num_threads": 1, "num_leaves": 6}, data, 4).model_to_string()


def replaced(text: str, name: str, place: int, value: str) -> str:
    """The model with one number of the first tree's list ``name`` changed."""

    def change(found: re.Match[str]) -> str:
        values = found[2].split(" ")
        values[place] = value
        return found[1] + " ".join(values)

    return re.sub(rf"^({name}=)(.*)$", change, text, count=1, flags=re.M)


def test_what_lightgbm_is_given_predicts_to_the_bit_what_was_trained(text):
    expected = lgb.Booster(model_str=text).predict(ROWS, raw_score=True)
    assert np.array_equal(Trees(text).raw(ROWS)[:, 0], expected)
    assert np.array_equal(Trees(checked_text(text, 1)).raw(ROWS)[:, 0], expected)


def test_missing_values_go_the_way_that_was_trained():
    rows = ROWS.copy()
    rows[::3, 0] = np.nan
    data = lgb.Dataset(rows, label=np.isnan(rows[:, 0]) + rows[:, 1])
    text = lgb.train({"verbosity": -1, "num_threads": 1}, data, 4).model_to_string()
    assert np.array_equal(Trees(text).raw(rows)[:, 0], lgb.Booster(model_str=text).predict(rows, raw_score=True))


def test_a_tree_of_one_leaf_is_a_tree():
    data = lgb.Dataset(np.zeros((50, 2)), label=np.arange(50.0))
    text = lgb.train({"verbosity": -1, "num_threads": 1}, data, 1).model_to_string()
    assert np.ptp(Trees(text).raw(np.zeros((3, 2)))) == 0


@pytest.mark.parametrize(
    ("name", "place", "value", "reason"),
    [
        ("split_feature", 0, "5", "outside of the 5"),
        ("split_feature", 0, "-1", "outside of the 5"),
        ("split_feature", 0, "2147483647", "outside of the 5"),
        ("left_child", 0, "99", "points outside of it or back"),
        ("left_child", 0, "-99", "points outside of it or back"),
        ("left_child", 1, "0", "points outside of it or back"),  # a circle: the prediction never ended
        ("left_child", 1, "1", "points outside of it or back"),
        ("right_child", 4, "-1", "reached twice or never"),
        ("leaf_value", 0, "nan", "not a number"),
        ("leaf_value", 0, "1e999", "not a finite number"),
        ("leaf_value", 0, "1e300", "not a finite number"),
        ("leaf_value", 0, "inf", "not a finite number"),
        ("threshold", 0, "nan", "not a number"),
        ("threshold", 0, "0x10", "not a number"),
        ("decision_type", 0, "1", "unknown kind"),
        ("decision_type", 0, "64", "unknown kind"),
        ("left_child", 0, "9" * 30, "no tree can have"),
        ("left_child", 0, "1 1", "more or fewer"),
        ("num_leaves", 0, "7", "more or fewer"),
        ("num_leaves", 0, "999999999", "leaves or none"),
        ("num_leaves", 0, "0", "leaves or none"),
        ("num_leaves", 0, "-3", "no whole number num_leaves"),
        ("num_cat", 0, "1", "categorical"),
        ("is_linear", 0, "1", "linear"),
        ("max_feature_idx", 0, "999999999", "features"),
        ("num_class", 0, "2", "1 numbers per row"),
    ],
)
def test_a_model_that_cannot_be_followed_is_refused(text, name, place, value, reason):
    broken = replaced(text, name, place, value)
    assert broken != text
    with pytest.raises(ValueError, match=reason):
        Trees(broken)


def test_a_list_that_is_said_twice_is_refused(text):
    with pytest.raises(ValueError, match="'leaf_value' twice"):
        Trees(text.replace("leaf_value=", "leaf_value=1 2 3 4 5 6\nleaf_value=", 1))


def test_false_sizes_of_trees_do_not_matter(text):
    """LightGBM jumps by them without looking where to."""
    sizes = re.search(r"^tree_sizes=(.*)$", text, flags=re.M)
    assert sizes is not None
    jumping = text.replace(sizes[0], "tree_sizes=" + " ".join(["99999999"] * 4))
    assert np.array_equal(Trees(jumping).raw(ROWS), Trees(text).raw(ROWS))
