"""Lengths of which some are only known to be longer."""

import numpy as np
import pytest

from laps_sd.predictors.censoring import kaplan_meier, normal_scores


def test_kaplan_meier_on_the_textbook_case():
    times, survival = kaplan_meier(np.array([1.0, 2.0, 2.0, 3.0]), np.array([False, False, True, False]))
    assert times.tolist() == [1, 2, 3]
    assert survival.tolist() == pytest.approx([3 / 4, 3 / 4 * 2 / 3, 0.0])


def test_scores_rank_lengths_and_credit_a_cut_request_with_more_than_its_cut():
    tokens = np.array([10.0, 20.0, 30.0, 40.0, 50.0])
    none = np.zeros(5, bool)
    assert (np.diff(normal_scores(tokens, none)) > 0).all()
    cut = np.array([False, True, False, False, False])
    assert normal_scores(tokens, cut)[1] > normal_scores(tokens, none)[1]
