"""The figures of acceptance and execution time, on requests whose truth is known."""

import json

import numpy as np
import pytest
from scipy import stats

from laps_sd.data import RequestRecord
from laps_sd.predictors.acceptance.base import AcceptancePrior
from laps_sd.predictors.acceptance.strength import (
    CHECKPOINTS,
    DEFAULT_STRENGTH,
    fit_strength,
    prefixes,
)
from laps_sd.scheduler import SurvivalCurve
from laps_sd.scheduler.posterior.factory import make_posterior
from laps_sd.scheduler.posterior.settings import PosteriorSettings
from laps_sd.scheduler.posterior.shrunken import geometric_variance
from laps_sd.training.evaluation.acceptance import (
    cross_validated_priors,
    evaluate_acceptance,
    start,
)
from laps_sd.training.evaluation.execution_time import PAPER_ERROR, evaluate_execution_time

N = 5


def record(tokens: list[int], name: str = "r", **fields: object) -> RequestRecord:
    histogram = np.bincount(np.array(tokens) - 1, minlength=N + 1)
    values = {
        "request_id": name,
        "prompt": f"Prompt {name}",
        "prompt_tokens": 4,
        "output_tokens": sum(tokens),
        "finish_reason": "stop",
        "draft": "ngram",
        "max_correct_drafts": N,
        "verify_steps": len(tokens),
        "accept_lengths": tuple(tokens),
        "correct_drafts_histogram": tuple(int(c) for c in histogram),
        **fields,
    }
    return RequestRecord(**values)


def prior(mean: float, strength: float = 16.0, unseeded: float = 2.0, **constants: float) -> AcceptancePrior:
    return AcceptancePrior(mean, strength, PosteriorSettings(**constants), N, unseeded, 8.0)


def drifting(n: int, seed: int, between: float = 0.08) -> tuple[list[RequestRecord], list[AcceptancePrior]]:
    """Chain drafts of 80 steps; each request's acceptance is known up to ``between`` and changes on the way."""
    random = np.random.default_rng(seed)
    records, priors = [], []
    for i in range(n):
        believed = random.uniform(0.3, 0.8)
        middle = np.clip(believed + between * random.standard_normal(), 0.05, 0.95)
        slope = 0.1 * random.standard_normal()
        alphas = np.clip(middle + slope * np.linspace(-1, 1, 80), 0.02, 0.98)
        tokens = [int(min(random.geometric(1 - a), N + 1)) for a in alphas]
        records.append(record(tokens, str(i)))
        priors.append(prior(sum(believed**j for j in range(N + 1))))
    return records, priors


def fitted(records: list[RequestRecord], priors: list[AcceptancePrior]) -> tuple[float, PosteriorSettings]:
    return fit_strength(np.array([p.mean for p in priors]), [np.array(r.accept_lengths) for r in records], N)


def test_a_prior_that_knows_makes_no_error():
    figures = evaluate_acceptance([record([3] * 60), record([2] * 60)], [prior(3.0), prior(2.0)])
    assert figures is not None
    assert figures["n"] == 2
    assert figures["kendall_tau"] == pytest.approx(1.0)
    assert figures["mape_accept_length"] == pytest.approx({"0": 0, "4": 0, "8": 0, "16": 0, "32": 0})
    assert figures["mape_accept_length_unseeded"]["0"] == pytest.approx((1 / 3 + 0) / 2)
    assert figures["mape_accept_length_raw"] == {"0": None, "4": 0, "8": 0, "16": 0, "32": 0}
    assert figures["coverage_80"]["8"] == 1.0


def test_errors_are_of_the_rest_not_of_what_was_seen():
    figures = evaluate_acceptance([record([1] * 8 + [4] * 40)], [prior(4.0, strength=1e8)])
    assert figures is not None
    assert figures["mape_accept_length"]["8"] == pytest.approx(0.0, abs=1e-6)
    assert figures["mape_accept_length_raw"]["8"] == pytest.approx(0.75)


def test_requests_near_their_end_are_left_out():
    figures = evaluate_acceptance([record([2] * 22), record([2] * 23)], [prior(2.0)] * 2)
    assert figures is not None
    assert figures["n_rest"] == {"0": 2, "4": 2, "8": 1, "16": 0, "32": 0}
    assert figures["mape_accept_length"]["16"] is None


def test_histograms_alone_give_the_error_at_arrival_only():
    bare = record([3] * 60).replace(accept_lengths=None)
    figures = evaluate_acceptance([bare], [prior(3.3)])
    assert figures is not None
    assert figures["mape_accept_length"]["0"] == pytest.approx(0.1)
    assert figures["mape_accept_length"]["8"] is None
    assert figures["coverage_80"]["8"] is None


def test_without_acceptance_data_there_are_no_figures():
    bare = [
        RequestRecord(request_id=str(i), prompt="hi", prompt_tokens=3, output_tokens=9, finish_reason="stop")
        for i in range(3)
    ]
    assert evaluate_acceptance(bare, [prior(2.0)] * 3) is None
    assert evaluate_execution_time(bare, [prior(2.0)] * 3, [SurvivalCurve.lognormal(100, 0.5)] * 3) is None


def test_figures_are_json():
    records, priors = drifting(5, 0)
    curves = [SurvivalCurve.lognormal(r.output_tokens, 0.3) for r in records]
    json.dumps(
        [evaluate_acceptance(records, priors), evaluate_execution_time(records, priors, curves)], allow_nan=False
    )


def test_fitted_constants_cover_what_they_claim_on_other_requests():
    strength, settings = fitted(*drifting(300, 1))
    records, priors = drifting(300, 2)
    held_out = [AcceptancePrior(p.mean, strength, settings, N, p.unseeded_mean, 8.0) for p in priors]
    figures = evaluate_acceptance(records, held_out)
    assert figures is not None
    for seen in ("8", "16", "32"):
        assert 0.74 <= figures["coverage_80"][seen] <= 0.86


def test_a_plain_beta_claims_too_much_when_acceptance_drifts():
    records, priors = drifting(300, 2)
    plain = PosteriorSettings(kind="beta", discount=1.0, temper=1.0, drift=0.0)
    sure = [AcceptancePrior(p.mean, 64.0, plain, N, p.unseeded_mean, 8.0) for p in priors]
    figures = evaluate_acceptance(records, sure)
    assert figures is not None
    assert figures["coverage_80"]["8"] < 0.72  # later on, that acceptance may have changed is taken in


def test_the_better_the_prior_the_more_steps_it_is_worth():
    vague, _ = fitted(*drifting(300, 3, between=0.2))
    sharp, _ = fitted(*drifting(300, 3, between=0.02))
    assert sharp > 2 * vague


def test_too_few_requests_keep_the_defaults():
    assert fitted(*drifting(20, 4)) == (DEFAULT_STRENGTH, PosteriorSettings())


def test_unordered_steps_fit_the_strength_alone():
    records, priors = drifting(100, 5)
    means, steps = np.array([p.mean for p in priors]), [np.array(r.accept_lengths) for r in records]
    strength, settings = fit_strength(means, steps, N, ordered=False)
    assert settings == PosteriorSettings()
    assert 2.0 <= strength <= 256.0


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_the_fit_uses_the_schedulers_own_formulas(discount, monkeypatch):
    """What is fitted for many requests at once is what the posterior computes by steps, where nothing can change."""
    monkeypatch.setattr("laps_sd.scheduler.posterior.base.possible_changes", lambda *_: [])
    priors = drifting(6, 6)[1]
    settings = PosteriorSettings(discount=discount, dispersion=0.6, drift=0.3)
    means = np.round([p.mean for p in priors], 3)  # priors share the variances of thousandths
    steps = [np.array([int(mean), int(mean) + 1] * 40) for mean in means]
    variances = np.array([geometric_variance(mean, N) for mean in means])
    for seen in CHECKPOINTS:
        mean, squared = prefixes(means, variances, steps, discount, seen).predict(12.0, 0.6, 0.3)
        for i, tokens in enumerate(steps):
            posterior = make_posterior(means[i], 12.0, settings, N)
            for t in tokens[:seen]:
                posterior.update(int(t) - 1, N)
            assert posterior.mean() == pytest.approx(mean[i])
            low, high = posterior.predictive_interval(0.2, len(tokens) - seen)
            assert (high - low) / 2 == pytest.approx(stats.t.ppf(0.6, 4) * squared[i] ** 0.5, rel=1e-6)


def test_remaining_steps_are_exact_when_everything_is_known():
    rows = [record([2] * 50)]
    curve = SurvivalCurve([0, 99, 100], [1.0, 1.0, 0.0])
    sure = AcceptancePrior(2.0, 1e6, PosteriorSettings(), N, 2.0, 8.0)
    figures = evaluate_execution_time(rows, [sure], [curve])
    assert figures is not None
    assert figures["paper_error"] == PAPER_ERROR
    assert figures["remaining_steps_median_relative_error"]["16"] == pytest.approx(0, abs=0.02)
    assert figures["remaining_steps_median_relative_error_known_length"]["16"] == pytest.approx(0, abs=1e-3)
    assert figures["elapsed_share"]["16"] == pytest.approx(16 / 50)
    assert figures["perceptible_share"]["0"] == 1.0
    assert figures["coverage_80"]["16"] == 1.0


def test_an_error_of_the_whole_request_shrinks_as_it_goes():
    rows = [record([2] * 50)]
    wrong = AcceptancePrior(4.0, 1e6, PosteriorSettings(), N, 2.0, 8.0)
    figures = evaluate_execution_time(rows, [wrong], [SurvivalCurve.lognormal(100, 0.5)])
    assert figures is not None
    rest, whole = (
        figures[f"{name}_median_relative_error_known_length"] for name in ("remaining_steps", "whole_request")
    )
    assert rest["32"] == pytest.approx(0.5, abs=1e-3)
    assert whole["32"] == pytest.approx(0.5 * 18 / 50, abs=1e-3)


def test_requests_that_were_cut_or_lack_their_steps_are_not_timed():
    rows = [record([2] * 50, finish_reason="length"), record([2] * 50).replace(accept_lengths=None)]
    assert evaluate_execution_time(rows, [prior(2.0)] * 2, [SurvivalCurve.lognormal(100, 0.5)] * 2) is None


def test_requests_that_have_ended_are_not_counted():
    rows = [record([2] * 10), record([2] * 50)]
    figures = evaluate_execution_time(rows, [prior(2.0)] * 2, [SurvivalCurve.lognormal(60, 0.5)] * 2)
    assert figures is not None
    assert figures["n_running"] == {"0": 2, "8": 2, "16": 1, "32": 1}


def test_the_posterior_that_is_evaluated_is_the_schedulers():
    assert start(prior(3.0)).mean() == make_posterior(3.0, 16.0, PosteriorSettings(), N).mean()


def test_priors_of_a_cross_validation_never_saw_their_request():
    records = [r.replace(prompt=f"word{i % 6} repeated", group=str(i)) for i, r in enumerate(drifting(60, 8)[0])]
    priors = cross_validated_priors(records, folds=3)
    assert len(priors) == 60
    everyone = np.mean([r.accept_length for r in records])
    assert len({round(p.unseeded_mean, 9) for p in priors}) == 3  # one mean for each fold's training requests
    assert all(abs(p.unseeded_mean - everyone) < 1 for p in priors)
