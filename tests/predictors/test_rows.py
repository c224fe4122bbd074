"""Splits that keep related prompts together."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from laps_sd.predictors.rows import grouped_folds


@given(st.integers(1, 40), st.integers(2, 6), st.data())
def test_folds_partition_the_rows_and_never_split_a_group(n, k, data):
    groups = np.array(data.draw(st.lists(st.integers(0, 8), min_size=n, max_size=n)))
    folds = grouped_folds(groups, n, k, 0)
    assert sorted(np.concatenate(folds).tolist()) == list(range(n))
    if len(np.unique(groups)) > 1:
        for label in np.unique(groups):
            assert sum(label in groups[fold] for fold in folds) == 1
