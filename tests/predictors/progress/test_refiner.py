"""The refined curve: the arrival curve where nothing was learned, moved where trees say so, refused where damaged."""

import dataclasses
from math import inf

import lightgbm as lgb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps_sd.data.progress.counting import CHECKPOINTS, COUNTERS
from laps_sd.predictors.length.calibration import Calibration
from laps_sd.predictors.progress.columns import NAMES, row_of
from laps_sd.predictors.progress.refiner import Refiner, log_odds, refined_curve, shifted
from laps_sd.predictors.trees import Trees
from laps_sd.scheduler import SurvivalCurve

SAME = Calibration.identity()
COUNTS = [0] * len(COUNTERS)


def scores(a: float, log_scale: float = 0.0) -> np.ndarray:
    return np.array([a, log_scale])


@given(st.floats(5, 2000), st.floats(0.1, 1.5), st.sampled_from(CHECKPOINTS))
@settings(max_examples=60, deadline=None)
def test_with_nothing_to_say_it_is_the_arrival_curve_given_the_tokens_so_far(median, sigma, checkpoint):
    curve = SurvivalCurve.lognormal(median, sigma)
    refined = refined_curve(curve, checkpoint, scores(0.0), SAME)
    assert refined.survive(checkpoint) == 1.0
    times = refined.edges[2:].astype(float)
    given_so_far = curve.going_on(times, checkpoint)
    assert [refined.survive(t) for t in times] == pytest.approx(given_so_far, abs=0.0005)


@given(st.floats(-20, 20), st.floats(-5, 5), st.floats(1, 5000), st.sampled_from(CHECKPOINTS))
@settings(max_examples=100, deadline=None)
def test_whatever_the_scores_are_it_is_a_curve(a, log_scale, median, checkpoint):
    refined = refined_curve(SurvivalCurve.lognormal(median, 0.6), checkpoint, scores(a, log_scale), SAME)
    assert refined.survive(checkpoint) == 1.0
    assert 1.0 <= refined.mean(checkpoint) < inf
    assert (np.diff(refined.survival) <= 0).all()


def test_a_higher_score_means_a_longer_rest_and_a_larger_scale_a_surer_one():
    curve = SurvivalCurve.lognormal(200, 0.7)
    shorter, same, longer = (refined_curve(curve, 64, scores(a), SAME) for a in (-2.0, 0.0, 2.0))
    assert shorter.mean(64) < same.mean(64) < longer.mean(64)
    surer = refined_curve(curve, 64, scores(0.0, 0.7), SAME)
    assert surer.quantile(0.9, 64) < same.quantile(0.9, 64)
    assert surer.quantile(0.1, 64) > same.quantile(0.1, 64)


def test_an_answer_that_outlived_its_curve_is_refined_too():
    curve = SurvivalCurve([0, 10, 20], [1.0, 0.5, 0.0])
    refined = refined_curve(curve, 1024, scores(-1.0), SAME)
    assert refined.edges[1] == 1024
    assert refined.mean(1024) < curve.mean(1024) + 1


def test_odds_of_the_arrival_curve_are_bounded():
    curve = SurvivalCurve.lognormal(100, 0.3)
    odds = log_odds(curve, 32, np.array([32.5, 1e6]))
    assert odds.tolist() == pytest.approx([8.0, -8.0])
    assert np.abs(shifted(odds, scores(1e9, 50.0))).max() <= 32.0


def trees_that_say(a: float) -> Trees:
    """Trees whose scores are a and 0 where the answer announced something, and 0 and 0 elsewhere."""
    place = NAMES.index("announced_items")
    rows = np.zeros((200, len(NAMES)))
    rows[100:, place] = 5.0
    target = np.zeros((200, 2))
    target[100:, 0] = a

    def gradients(raw, _data):
        return raw.reshape(200, 2) - target, np.ones((200, 2))

    parameters = {"objective": gradients, "num_class": 2, "num_leaves": 2, "min_data_in_leaf": 5, "learning_rate": 1.0}
    data = lgb.Dataset(rows, label=np.zeros(200))
    return Trees(lgb.train({**parameters, "verbosity": -1}, data, 1).model_to_string(), 2)


@pytest.fixture(scope="module")
def refiner():
    return Refiner(trees_that_say(-3.0), SAME, [64, 128], ["v1-abc"])


def test_the_counts_decide(refiner):
    curve = SurvivalCurve.lognormal(300, 0.7)
    announcing = [5 if name == "announced_items" else 0 for name in COUNTERS]
    assert refiner.refine(curve, 64, announcing).mean(64) < 0.5 * refiner.refine(curve, 64, COUNTS).mean(64)


def test_where_it_knows_no_better_it_says_nothing(refiner):
    assert refiner.refine(SurvivalCurve.lognormal(300, 0.7), 32, COUNTS) is None


def test_a_row_is_finite_but_for_what_is_not_known():
    row = row_of(SurvivalCurve.lognormal(300, 0.7), 64, COUNTS, None)
    assert [name for name, value in zip(NAMES, row, strict=True) if not np.isfinite(value)] == ["accept_length"]
    assert np.isfinite(row_of(SurvivalCurve([0, 5], [1.0, 0.0]), 2048, COUNTS, 3.0)).all()


def test_its_state_gives_the_same_refinement_again(refiner):
    again = Refiner.from_state(refiner.to_state())
    curve = SurvivalCurve.lognormal(300, 0.7)
    assert again.refine(curve, 128, COUNTS) == refiner.refine(curve, 128, COUNTS)
    assert (again.checkpoints, again.tables) == (refiner.checkpoints, refiner.tables)


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ({"columns": ["chars"]}, "reads other counts"),
        ({"checkpoints": []}, "needs checkpoints out of"),
        ({"checkpoints": [65]}, "needs checkpoints out of"),
        ({"checkpoints": [128, 64]}, "not whole numbers in order"),
        ({"checkpoints": [True]}, "not whole numbers in order"),
        ({"checkpoints": "64"}, "not whole numbers in order"),
        ({"tables": []}, "names no token-class tables"),
        ({"tables": ["x"] * 65}, "names no token-class tables"),
        ({"tables": [7]}, "something else than"),
        ({"tables": ["x" * 65]}, "something else than"),
    ],
)
def test_a_state_that_training_would_not_write_is_refused(refiner, meta, said):
    state = refiner.to_state()
    with pytest.raises(ValueError, match=said):
        Refiner.from_state(dataclasses.replace(state, meta={**state.meta, **meta}))


def test_trees_of_another_shape_are_refused(refiner):
    state = refiner.to_state()
    with pytest.raises(ValueError, match="needs trees"):
        Refiner(Trees(small_trees(), 2), SAME, [64], ["v1-abc"])
    with pytest.raises(ValueError, match="LightGBM"):
        Refiner.from_state(dataclasses.replace(state, texts={"trees": "tree\nnot really"}))


def small_trees() -> str:
    rows = np.arange(60.0).reshape(30, 2)

    def gradients(raw, _data):
        return raw.reshape(30, 2) - 1.0, np.ones((30, 2))

    parameters = {"objective": gradients, "num_class": 2, "verbosity": -1, "min_data_in_leaf": 2}
    return lgb.train(parameters, lgb.Dataset(rows, label=np.zeros(30)), 1).model_to_string()
