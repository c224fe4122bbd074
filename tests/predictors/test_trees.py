"""LightGBM through its C interface says what its Python interface says."""

import lightgbm as lgb
import numpy as np
import pytest

from laps_sd.predictors.trees import Trees


@pytest.fixture(scope="module")
def trained():
    random = np.random.default_rng(0)
    rows = random.normal(size=(300, 6))
    labels = (rows[:, 0] > 0).astype(int) + (rows[:, 1] > 0.5)
    parameters = {"objective": "multiclass", "num_class": 3, "verbosity": -1, "num_threads": 1}
    return lgb.train(parameters, lgb.Dataset(rows, labels), 10), rows


def test_batches_and_single_rows_give_lightgbm_s_own_scores(trained):
    booster, rows = trained
    trees = Trees(booster.model_to_string(), 3)
    expected = booster.predict(rows, raw_score=True)
    assert trees.raw(rows) == pytest.approx(expected, abs=1e-12)
    assert np.vstack([trees.raw(row[None]) for row in rows[:20]]) == pytest.approx(expected[:20], abs=1e-12)


def test_no_rows_give_no_scores(trained):
    assert Trees(trained[0].model_to_string(), 3).raw(np.empty((0, 6))).shape == (0, 3)


def test_rows_of_the_wrong_width_never_reach_the_library(trained):
    with pytest.raises(ValueError, match="read 6 features"):
        Trees(trained[0].model_to_string(), 3).raw(np.zeros((1, 5)))


def test_other_outputs_and_other_texts_are_refused(trained):
    with pytest.raises(ValueError, match="2 numbers per row"):
        Trees(trained[0].model_to_string(), 2)
    with pytest.raises(ValueError, match="not a LightGBM model"):
        Trees("import os")
    with pytest.raises(ValueError, match="LightGBM"):
        Trees("tree\nversion=v4\n")
