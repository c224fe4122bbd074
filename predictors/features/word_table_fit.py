"""Fitting the word table; apart from it, because a server reads tables and needs no scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge

from laps_sd.predictors.arrays import Floats, Ints
from laps_sd.predictors.features.word_table import WordTable, terms_of


def fit_word_table(
    prompts: Sequence[list[str]],
    target: Floats,
    folds: Sequence[Ints],
    *,
    dimensions: int,
    seed: int,
    most_terms: int = 20_000,
    penalty: float = 3.0,
) -> tuple[WordTable, Floats]:
    """Fit the table.

    Parameters
    ----------
    prompts : sequence of lists of str
        ``words_of`` each prompt.
    target : array, shape (n,)
        What the ridge regresses on.
    folds : sequence of index arrays
        Each fold's ridge score comes from the other folds, as a later learner will read it.

    Returns
    -------
    table : WordTable
    rows : array, shape (n, width)
        Training features, the ridge score out-of-fold.
    """
    least = 2 if len(prompts) < 2000 else 3
    vectorizer = TfidfVectorizer(analyzer=terms_of, min_df=least, binary=True, max_features=most_terms)
    try:
        matrix = vectorizer.fit_transform(prompts)
    except ValueError:  # no term occurs often enough: nothing to learn from words
        empty = WordTable({}, np.zeros((0, 1 + dimensions), np.float32), np.zeros(0, np.float32), float(target.mean()))
        return empty, np.array([empty.row(words) for words in prompts])
    score = np.empty(len(prompts))
    everyone = np.arange(len(prompts))
    for test in folds:
        train = np.setdiff1d(everyone, test)
        score[test] = _ridge(penalty).fit(matrix[train], target[train]).predict(matrix[test])
    ridge = _ridge(penalty).fit(matrix, target)
    kept = min(dimensions, matrix.shape[1] - 1, matrix.shape[0] - 1)
    latent = np.zeros((dimensions, matrix.shape[1]))
    if kept > 0:
        # Prompts that all share their words have no variance, and the share of it explained (unused) is 0 / 0.
        with np.errstate(divide="ignore", invalid="ignore"):
            latent[:kept] = TruncatedSVD(kept, random_state=seed).fit(matrix).components_
    idf = vectorizer.idf_
    table = (np.column_stack([ridge.coef_, latent.T]) * idf[:, None]).astype(np.float32)
    vocabulary = {term: int(i) for term, i in vectorizer.vocabulary_.items()}
    fitted = WordTable(vocabulary, table, (idf**2).astype(np.float32), float(ridge.intercept_))
    rows = np.column_stack([score, np.asarray(matrix @ latent.T)])
    return fitted, rows


def _ridge(penalty: float) -> Ridge:
    return Ridge(alpha=penalty, solver="sparse_cg", tol=1e-4)
