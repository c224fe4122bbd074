"""The acceptance predictor: prompts, runs, strengths, and what it does with little data."""

import zlib
from collections.abc import Callable

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import Pipeline

from laps_sd.data import PromptRequest, RequestRecord
from laps_sd.data.prompts import generate_prompts
from laps_sd.errors import InputError
from laps_sd.predictors.acceptance.fit import AcceptanceEstimator, fit_acceptance
from laps_sd.predictors.acceptance.observed import RunKey, run_keys, step_tokens
from laps_sd.predictors.acceptance.predictor import UNKNOWN_STRENGTH, PromptAcceptance
from laps_sd.predictors.acceptance.run_mean import RunMeanAcceptance
from laps_sd.predictors.store import read_folder, write_folder
from laps_sd.scheduler.posterior.settings import PosteriorSettings

N = 5


def draw_runs(
    n: int, seed: int = 0, *, draft: str = "ngram", drafts: int = N, spread: float = 0.6, ordered: bool = True
) -> list[RequestRecord]:
    """Chain drafts whose acceptance depends on the kind of prompt: 0.5 ± spread / 2 per token."""
    random = np.random.default_rng(seed)
    records = []
    for prompt in generate_prompts(n, seed):
        place = zlib.crc32((prompt.category or "").encode()) % 1000 / 1000 - 0.5
        alpha = np.clip(0.5 + spread * place + 0.04 * random.standard_normal(), 0.02, 0.98)
        steps = int(random.integers(20, 60))
        ks = np.minimum(random.geometric(1 - alpha, steps) - 1, drafts)
        records.append(
            RequestRecord(
                request_id=f"{draft}/{drafts}/{prompt.prompt_id}",
                prompt=prompt.prompt,
                prompt_tokens=max(1, len(prompt.prompt) // 4),
                output_tokens=int(ks.sum() + steps),
                finish_reason="stop",
                model="target",
                draft=draft,
                max_correct_drafts=drafts,
                verify_steps=steps,
                accept_lengths=tuple(int(k) + 1 for k in ks) if ordered else None,
                correct_drafts_histogram=tuple(int((ks == k).sum()) for k in range(drafts + 1)),
                category=prompt.category,
                group=prompt.group,
            )
        )
    return records


def requests_of(records: list[RequestRecord]) -> list[PromptRequest]:
    return [PromptRequest.from_record(r) for r in records]


@pytest.fixture(scope="module")
def trained() -> list[RequestRecord]:
    return draw_runs(200)


@pytest.fixture(scope="module")
def fresh() -> list[RequestRecord]:
    return draw_runs(120, seed=7)


@pytest.fixture(scope="module")
def model(trained: list[RequestRecord]) -> PromptAcceptance:
    fitted = fit_acceptance(trained)
    assert isinstance(fitted, PromptAcceptance)
    return fitted


def error(predicted: np.ndarray, records: list[RequestRecord]) -> float:
    real = np.array([r.accept_length for r in records])
    return float(np.mean(np.abs(predicted - real) / real))


def test_prompts_tell_more_than_the_runs_mean(model, fresh):
    priors = model.priors(requests_of(fresh), draft="ngram", max_correct_drafts=N)
    seeded = error(np.array([p.mean for p in priors]), fresh)
    unseeded = error(np.array([p.unseeded_mean for p in priors]), fresh)
    assert seeded < 0.7 * unseeded


def test_a_prior_that_prompts_tell_is_worth_more_steps(model):
    (run,) = model.runs
    assert run.strength > 2 * run.unseeded_strength


def test_priors_are_within_what_a_step_can_emit(model, fresh):
    means, strengths = model.predict_prior(requests_of(fresh))
    assert ((means >= 1) & (means <= N + 1)).all()
    assert (strengths > 0).all()
    assert means.shape == strengths.shape == (len(fresh),)


def test_nothing_to_predict_is_no_error(model):
    means, strengths = model.predict_prior([])
    assert means.shape == strengths.shape == (0,)


@pytest.mark.parametrize("prompt", ["", " ", "\ud800", "界" * 3000, "a" * 100_000])
def test_any_text_gets_a_prior(model, prompt):
    (mean,), _ = model.predict_prior([PromptRequest(prompt=prompt)])
    assert 1 <= mean <= N + 1


def test_useless_prompts_are_not_worse_than_the_mean():
    random = np.random.default_rng(3)
    train, test = draw_runs(150, seed=1, spread=0.0), draw_runs(150, seed=2, spread=0.0)
    random.shuffle(train)
    priors = fit_acceptance(train).priors(requests_of(test))
    seeded = error(np.array([p.mean for p in priors]), test)
    assert seeded <= 1.02 * error(np.array([p.unseeded_mean for p in priors]), test)


def test_a_few_requests_give_their_mean_and_nothing_more():
    few = draw_runs(12)
    fitted = fit_acceptance(few)
    (run,) = fitted.runs
    assert run.kernel is None
    means, _ = fitted.predict_prior(requests_of(few))
    assert np.ptp(means) == 0


def test_constant_acceptance_is_learned_exactly():
    rows = [
        r.replace(
            accept_lengths=(1,) * 30, correct_drafts_histogram=(30, 0, 0, 0, 0, 0), verify_steps=30, output_tokens=30
        )
        for r in draw_runs(60)
    ]
    means, _ = fit_acceptance(rows).predict_prior(requests_of(rows))
    assert means == pytest.approx(1.0)


def test_records_without_acceptance_give_a_prior_without_weight(trained):
    bare = [r.replace(accept_lengths=None, correct_drafts_histogram=None) for r in trained]
    fitted = fit_acceptance(bare)
    assert isinstance(fitted, RunMeanAcceptance)
    assert fitted.strength <= 1


def test_histograms_alone_are_enough(fresh):
    fitted = fit_acceptance(draw_runs(200, ordered=False))
    (run,) = fitted.runs
    assert run.settings == PosteriorSettings()  # drift and correlation cannot be seen in a histogram
    assert run.strength > run.unseeded_strength
    means, _ = fitted.predict_prior(requests_of(fresh))
    assert error(means, fresh) < 0.8 * error(np.full(len(fresh), np.exp(run.center)), fresh)


def test_histograms_beside_ordered_steps_are_not_lost(trained, fresh):
    """A handful of collected requests beside a large export of the server."""
    export = [r.replace(accept_lengths=None) for r in trained]
    (alone,), (both,) = fit_acceptance(export).runs, fit_acceptance([*export, *draw_runs(5, seed=11)]).runs
    assert both.center == pytest.approx(alone.center, abs=0.03)
    means, _ = fit_acceptance([*export, *draw_runs(5, seed=11)]).predict_prior(requests_of(fresh))
    assert error(means, fresh) < 0.8 * error(np.full(len(fresh), np.exp(both.center)), fresh)


def test_an_unknown_draft_gets_the_average_and_little_weight(model, fresh):
    means, strengths = model.predict_prior(requests_of(fresh), draft="never seen")
    assert means == pytest.approx(np.exp(model.runs[0].center))
    assert strengths == pytest.approx(UNKNOWN_STRENGTH)
    assert model.posterior_settings("never seen") == PosteriorSettings()


def test_names_of_drafts_do_not_depend_on_case(model, fresh):
    upper, _ = model.predict_prior(requests_of(fresh), draft="NGRAM")
    lower, _ = model.predict_prior(requests_of(fresh), draft="ngram")
    assert np.array_equal(upper, lower)


def test_another_draft_length_is_converted_and_trusted_less(model, fresh):
    requests = requests_of(fresh)
    same, strength = model.predict_prior(requests, draft="ngram", max_correct_drafts=N)
    short, less = model.predict_prior(requests, draft="ngram", max_correct_drafts=2)
    assert (short <= same + 1e-9).all()
    assert (short <= 3).all()
    assert (less <= strength).all()
    assert less.min() < strength.min()
    shorter = draw_runs(120, seed=7, drafts=2)
    assert error(short, shorter) < 0.2


@pytest.fixture(scope="module")
def mixed() -> PromptAcceptance:
    low, high = draw_runs(120, seed=1, spread=0.2), draw_runs(100, seed=2, draft="eagle", drafts=3, spread=0.2)
    generous = [
        r.replace(accept_lengths=(4,) * 30, correct_drafts_histogram=(0, 0, 0, 30), verify_steps=30, output_tokens=120)
        for r in high
    ]
    fitted = fit_acceptance([*low, *generous])
    assert isinstance(fitted, PromptAcceptance)
    return fitted


def test_runs_of_one_training_set_are_kept_apart(mixed, fresh):
    requests = requests_of(fresh)
    ngram, _ = mixed.predict_prior(requests, draft="ngram", max_correct_drafts=N)
    eagle, _ = mixed.predict_prior(requests, draft="eagle", max_correct_drafts=3)
    assert eagle == pytest.approx(4.0)
    assert ngram.max() < 3.5


def test_without_a_named_draft_the_largest_run_speaks(mixed, fresh):
    requests = requests_of(fresh)
    assert np.array_equal(mixed.predict_prior(requests)[0], mixed.predict_prior(requests, draft="ngram")[0])


def test_one_at_a_time_is_the_same_as_together(model, fresh):
    requests = requests_of(fresh)[:20]
    together, _ = model.predict_prior(requests)
    alone = [float(model.predict_prior([r])[0][0]) for r in requests]
    assert alone == pytest.approx(together.tolist(), rel=1e-9)


def test_rows_already_computed_are_used(model, fresh):
    requests = requests_of(fresh)
    given, _ = model.predict_prior(requests, rows=model.features.rows(requests))
    assert np.array_equal(given, model.predict_prior(requests)[0])


@pytest.mark.parametrize("with_features", [True, False])
def test_a_folder_brings_it_back(model, fresh, tmp_path, with_features):
    write_folder(tmp_path / "b", {"acceptance": model.to_state(with_features)}, {})
    states, _ = read_folder(tmp_path / "b")
    again = PromptAcceptance.from_state(states["acceptance"], None if with_features else model.features)
    requests = requests_of(fresh)
    assert np.array_equal(again.predict_prior(requests)[0], model.predict_prior(requests)[0])
    assert again.runs[0].settings == model.runs[0].settings
    assert again.runs[0].strength == model.runs[0].strength


def test_a_state_without_its_features_is_refused(model):
    with pytest.raises(ValueError, match="features"):
        PromptAcceptance.from_state(model.to_state(with_features=False))


def test_the_same_records_give_the_same_model(trained, model, fresh):
    again, _ = fit_acceptance(trained).predict_prior(requests_of(fresh))
    assert np.array_equal(again, model.predict_prior(requests_of(fresh))[0])


def test_it_is_a_scikit_learn_regressor(trained):
    prompts = [r.prompt for r in trained[:90]]
    tokens = np.array([r.accept_length for r in trained[:90]])
    estimator = clone(AcceptanceEstimator(landmarks=64, seed=3))
    assert estimator.get_params()["landmarks"] == 64
    predicted = cross_val_predict(Pipeline([("acceptance", estimator)]), prompts, tokens, cv=3)
    assert predicted.shape == (90,)
    assert error(predicted, trained[:90]) < 0.5


@pytest.mark.parametrize("target", [[np.nan, 2.0], [0.5, 2.0], [2.0]])
def test_a_target_that_makes_no_sense_is_refused(target: list[float]):
    with pytest.raises(InputError, match="accept length"):
        AcceptanceEstimator().fit(["a", "b"], target)


def test_nothing_to_learn_from_is_refused():
    with pytest.raises(InputError, match="acceptance data"):
        AcceptanceEstimator().fit([], [])


def observed_maximum(record: RequestRecord) -> RequestRecord:
    """As a file without the configured draft length looks: the most that this request happened to accept."""
    histogram = list(record.correct_drafts_histogram or ())
    while histogram and not histogram[-1]:
        histogram.pop()
    return record.replace(max_correct_drafts=len(histogram) - 1, correct_drafts_histogram=tuple(histogram))


def test_a_draft_length_read_off_the_outcome_is_not_believed():
    seen = [observed_maximum(r) for r in draw_runs(60, spread=0.9)]
    assert len({r.max_correct_drafts for r in seen}) > 1
    assert set(run_keys(seen)) == {RunKey("target", "ngram", N)}


def test_real_draft_lengths_make_runs_of_their_own():
    keys = run_keys([*draw_runs(30, drafts=3), *draw_runs(30, drafts=5)])
    assert {key.drafts for key in keys} == {3, 5}


def test_steps_come_in_order_or_at_random_from_the_histogram(draw: Callable[..., list[RequestRecord]]):
    record = draw_runs(1)[0]
    assert step_tokens(record).tolist() == list(record.accept_lengths)
    bare = record.replace(accept_lengths=None)
    assert len(step_tokens(bare)) == 0
    shuffled = step_tokens(bare, np.random.default_rng(0))
    assert sorted(shuffled) == sorted(record.accept_lengths)
    assert len(step_tokens(draw(1)[0], np.random.default_rng(0))) == 0
