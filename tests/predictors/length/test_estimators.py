"""One suite of contract checks that every length estimator must pass."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import Pipeline

from laps_sd.data import PromptRequest
from laps_sd.errors import InputError
from laps_sd.predictors.length.baselines import AskedForLength, ConstantLength, PromptLength
from laps_sd.predictors.length.hazard import HazardLength

ESTIMATORS = [ConstantLength(), PromptLength(), AskedForLength(), HazardLength(folds=2)]
ODD_PROMPTS = [
    "",
    " ",
    "\n\n",
    "?",
    "写一首关于秋天的诗",
    "Напиши рассказ",
    "🙂" * 50,
    "\ud800 lone",
    "x" * 20_000,
    "a\0b",
]


@pytest.fixture(scope="module", params=ESTIMATORS, ids=lambda e: type(e).__name__)
def estimator(request):
    return clone(request.param)


@pytest.fixture(scope="module")
def fitted(estimator, requests, tokens):
    return clone(estimator).fit(requests, tokens)


def test_parameters_are_stored_untouched_and_survive_a_clone(estimator):
    assert clone(estimator).get_params() == estimator.get_params()
    assert clone(estimator).set_params(buckets=11).buckets == 11


def test_fitting_returns_the_estimator_itself(estimator, requests, tokens):
    fresh = clone(estimator)
    assert fresh.fit(requests[:40], tokens[:40]) is fresh


def test_an_unfitted_estimator_says_so(estimator):
    with pytest.raises(NotFittedError):
        clone(estimator).predict(["hello"])


def test_it_works_in_a_pipeline_and_in_cross_validation(estimator, requests, tokens):
    pipeline = Pipeline([("length", clone(estimator))])
    predicted = cross_val_predict(pipeline, requests[:80], tokens[:80], cv=2)
    assert predicted.shape == (80,)
    assert np.isfinite(predicted).all()


def test_medians_are_positive_and_curves_are_survival_curves(fitted, requests):
    assert (fitted.predict(requests) >= 0).all()
    survival = fitted.predict_survival(requests)
    assert survival.shape == (len(requests), len(fitted.edges_))
    assert np.allclose(survival[:, 0], 1.0)
    assert (np.diff(survival, axis=1) <= 1e-12).all()
    assert (survival >= 0).all()


def test_curves_fit_into_a_request(fitted, requests):
    assert all(len(curve.edges) <= 40 for curve in fitted.predict_curves(requests[:5]))


def test_same_input_same_output(estimator, fitted, requests, tokens):
    again = clone(estimator).fit(requests, tokens)
    assert np.array_equal(fitted.predict_survival(requests), again.predict_survival(requests))


def test_a_batch_says_what_single_requests_say(fitted, requests):
    batch = fitted.predict_survival(requests[:10])
    single = np.vstack([fitted.predict_survival([r]) for r in requests[:10]])
    assert np.allclose(batch, single, atol=1e-9)


def test_one_prompt_no_prompt_and_plain_text_are_accepted(fitted):
    assert fitted.predict(["What is a hazard?"]).shape == (1,)
    assert fitted.predict([]).shape == (0,)
    known = fitted.predict_survival([PromptRequest(prompt="What is a hazard?")])
    assert np.array_equal(known, fitted.predict_survival(["What is a hazard?"]))


@pytest.mark.parametrize("prompt", ODD_PROMPTS, ids=range(len(ODD_PROMPTS)))
def test_any_text_gets_a_finite_curve(fitted, prompt):
    assert np.isfinite(fitted.predict_survival([prompt])).all()


def test_the_fitted_model_is_rebuilt_exactly_from_its_state(fitted, requests):
    rebuilt = type(fitted.model_).from_state(fitted.model_.to_state())
    assert np.array_equal(rebuilt.survival(requests), fitted.model_.survival(requests))


def test_too_few_rows_are_refused(estimator, requests, tokens):
    with pytest.raises(InputError, match="at least 16"):
        clone(estimator).fit(requests[:5], tokens[:5])


def test_lengths_that_are_not_numbers_are_refused(estimator, requests, tokens):
    for bad in (np.nan, np.inf, -1.0):
        broken = tokens.copy()
        broken[3] = bad
        with pytest.raises(InputError, match="output length"):
            clone(estimator).fit(requests, broken)


def test_rows_that_were_all_cut_are_refused(estimator, requests, tokens):
    with pytest.raises(InputError, match="no ending was seen"):
        clone(estimator).fit(requests, tokens, censored=np.ones(len(tokens), bool))


def test_rows_and_lengths_must_match(estimator, requests, tokens):
    with pytest.raises(InputError, match="one length per prompt"):
        clone(estimator).fit(requests, tokens[:-1])
    with pytest.raises(InputError, match="one mark per prompt"):
        clone(estimator).fit(requests, tokens, censored=np.zeros(3, bool))


def test_a_constant_length_is_learned_without_harm(estimator, requests):
    constant = clone(estimator).fit(requests, np.full(len(requests), 50.0))
    assert np.allclose(constant.predict(requests), 50.0, rtol=0.25)
