"""The learned word table, the kernel score and the normal scores that they regress on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps_sd.predictors.censoring import normal_scores
from laps_sd.predictors.features.kernel_fit import fit_kernel
from laps_sd.predictors.features.lexical import words_of
from laps_sd.predictors.features.word_table import WordTable, decode_terms, encode_terms, terms_of
from laps_sd.predictors.features.word_table_fit import fit_word_table
from laps_sd.predictors.rows import grouped_folds


def test_terms_are_words_pairs_and_the_marked_ends():
    assert set(terms_of(["a", "b"])) == {("a",), ("b",), ("a", "b"), ("^", "a"), ("^", "b"), ("$", "a"), ("$", "b")}


def test_the_table_reads_a_training_prompt_as_it_was_fitted(requests, tokens):
    words = [words_of(r.prompt) for r in requests]
    target = normal_scores(tokens, np.zeros(len(tokens), bool))
    folds = grouped_folds(None, len(words), 3, 0)
    table, rows = fit_word_table(words, target, folds, dimensions=8, seed=0)
    read = np.array([table.row(w) for w in words])
    assert read[:, 1:] == pytest.approx(rows[:, 1:], abs=1e-4)
    assert np.corrcoef(rows[:, 0], target)[0, 1] > 0.5  # out-of-fold
    assert np.corrcoef(read[:, 0], target)[0, 1] > np.corrcoef(rows[:, 0], target)[0, 1]


@given(st.lists(st.sampled_from("abcde"), max_size=12), st.randoms(use_true_random=False))
def test_the_fast_look_up_finds_exactly_the_known_terms(words, random):
    known = [t for t in {*terms_of(list("abcdabd")), ("e",)} if random.random() < 0.7]
    vocabulary = {term: i for i, term in enumerate(sorted(known))}
    numbers = np.arange(2.0 * len(vocabulary), dtype=np.float32).reshape(-1, 2)
    table = WordTable(vocabulary, numbers, np.ones(len(vocabulary), np.float32), 0.0)
    known_rows = sorted({vocabulary[t] for t in terms_of(words) if t in vocabulary})
    expected = numbers[known_rows].sum(axis=0) / max(1.0, len(known_rows)) ** 0.5
    np.testing.assert_allclose(table.row(words), expected, rtol=1e-5)
    prompts = [words, [], words[:2], words[::-1]]
    np.testing.assert_allclose(table.rows(prompts), [table.row(w) for w in prompts], rtol=1e-5)


def test_words_that_nobody_repeats_teach_nothing_and_break_nothing():
    words = [[f"only{i}"] for i in range(20)]
    table, rows = fit_word_table(words, np.arange(20.0), grouped_folds(None, 20, 2, 0), dimensions=4, seed=0)
    assert rows.shape == (20, 5)
    assert table.row(["unknown"])[0] == pytest.approx(9.5)


def test_prompts_that_share_all_their_words_teach_nothing_and_warn_of_nothing():
    prompts = [["old", "question", "number"]] * 40
    folds = [np.arange(start, 40, 5) for start in range(5)]
    table, rows = fit_word_table(prompts, np.linspace(-1, 1, 40), folds, dimensions=4, seed=0)
    assert np.isfinite(rows).all()
    assert np.isfinite(table.rows(prompts)).all()


def test_a_vocabulary_survives_its_text_form():
    vocabulary = {("a",): 0, ("a", "b"): 1, ("^", "naïve"): 2}
    assert decode_terms(encode_terms(vocabulary)) == vocabulary
    assert decode_terms(encode_terms({})) == {}


def test_the_kernel_score_follows_a_smooth_function_it_has_not_seen():
    random = np.random.default_rng(0)
    rows = random.uniform(-1, 1, (300, 2))
    target = np.sin(2 * rows[:, 0]) + rows[:, 1] ** 2
    folds = grouped_folds(None, 300, 5, 0)
    model, out_of_fold = fit_kernel(rows, target, folds, gamma=1.0, penalty=0.1, most_landmarks=100, seed=0)
    assert np.corrcoef(out_of_fold, target)[0, 1] > 0.98
    assert len(model.landmarks) == 100


def test_a_fold_s_scores_do_not_depend_on_its_own_targets():
    random = np.random.default_rng(1)
    rows, target = random.normal(size=(60, 3)), random.normal(size=60)
    folds = grouped_folds(None, 60, 3, 0)
    changed = target.copy()
    changed[folds[0]] += 100.0
    options = {"gamma": 0.5, "penalty": 1.0, "most_landmarks": 60, "seed": 0}
    mean = float(target.mean())
    _, before = fit_kernel(rows, target - mean, folds, **options)
    _, after = fit_kernel(rows, changed - changed.mean(), folds, **options)
    # Only the common mean moves them.
    shift = after[folds[0]] - before[folds[0]]
    assert np.abs(shift).max() < 60
