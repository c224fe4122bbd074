"""The posterior's formulas against independent ones: SciPy, numeric integration, simulation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from laps_sd.scheduler.posterior.factory import make_posterior
from laps_sd.scheduler.posterior.settings import PosteriorSettings
from laps_sd.scheduler.posterior.truncated_geometric import (
    acceptance_rate,
    half_width,
    mean_tokens,
    tokens_variance,
)

ALPHAS = st.floats(0.0, 1.0)
DRAFTS = st.integers(0, 64)


def law(alpha, n):
    """P(k) for k = 0 … n, straight from its definition."""
    return np.array([alpha**k * (1 - alpha) for k in range(n)] + [alpha**n])


@given(ALPHAS, DRAFTS)
def test_mean_and_variance_are_those_of_the_truncated_geometric_law(alpha, n):
    k, p = np.arange(n + 1), law(alpha, n)
    mean = (p * (k + 1)).sum()
    assert mean_tokens(alpha, n) == pytest.approx(mean)
    assert tokens_variance(alpha, n) == pytest.approx((p * (k + 1 - mean) ** 2).sum(), abs=1e-9)


@given(st.integers(1, 64), st.floats(0.0, 1.0))
def test_the_rate_is_the_inverse_of_the_mean(n, share):
    mean = 1.0 + share * n
    assert mean_tokens(acceptance_rate(mean, n), n) == pytest.approx(mean, abs=1e-9)


def test_a_mean_out_of_reach_gives_the_nearest_rate():
    assert acceptance_rate(0.5, 5) == 0.0
    assert acceptance_rate(7.0, 5) == 1.0
    assert acceptance_rate(3.0, 0) == 0.0


@given(st.floats(0.01, 0.99))
def test_half_width_is_the_quantile_of_student_t(level):
    assert half_width(level) == pytest.approx(stats.t.ppf(0.5 + level / 2, 4), rel=1e-9)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.floats(1.2, 4.5), st.floats(1.0, 50.0))
def test_the_beta_posterior_is_bayes_rule_by_numeric_integration(ks, prior_mean, strength):
    """Prior × likelihood of the truncated geometric law, integrated over α: nothing conjugate is assumed."""
    n = 4
    settings = PosteriorSettings(kind="beta", discount=1.0, temper=1.0)
    posterior = make_posterior(prior_mean, strength, settings, n)
    a, b = posterior.shape
    for k in ks:
        posterior.update(k, n)

    # Over the logit, where the integrand vanishes smoothly at both ends even if the density of α does not.
    logit = np.linspace(-150.0, 150.0, 15_001)
    log_alpha, log_rest = -np.logaddexp(0.0, -logit), -np.logaddexp(0.0, logit)
    log_density = a * log_alpha + b * log_rest
    for k in ks:
        log_density += k * log_alpha + (k < n) * log_rest
    density = np.exp(log_density - log_density.max())
    density /= density.sum()
    alpha = np.exp(log_alpha)
    tokens = sum(alpha**j for j in range(n + 1))
    mean = float(density @ tokens)
    assert posterior.mean() == pytest.approx(mean, rel=1e-6)
    assert posterior.variance() == pytest.approx(float(density @ (tokens - mean) ** 2), rel=1e-4, abs=1e-9)


def test_the_dirichlet_posterior_is_that_of_drawn_probabilities():
    settings = PosteriorSettings(kind="dirichlet", discount=1.0, temper=1.0)
    posterior = make_posterior(2.0, 6.0, settings, 3)
    ks = [0, 3, 3, 1, 0, 2]
    prior = 6.0 * law(acceptance_rate(2.0, 3), 3)
    for k in ks:
        posterior.update(k, 3)
    drawn = stats.dirichlet.rvs(prior + np.bincount(ks, minlength=4), 200_000, random_state=0) @ np.arange(1, 5)
    assert posterior.mean() == pytest.approx(drawn.mean(), abs=3e-3)
    assert posterior.variance() == pytest.approx(drawn.var(), rel=0.02)


def test_the_shrunken_posterior_is_the_normal_models():
    settings = PosteriorSettings(discount=1.0, dispersion=0.7)
    posterior = make_posterior(2.0, 12.0, settings, 5)
    tokens = [1.0, 6.0, 2.0, 3.0]
    noise = posterior.variance() * 12.0  # σ²: the prior's scale is σ²/κ
    for t in tokens:
        posterior.update(int(t) - 1, 5)
    precision = 12.0 / noise + len(tokens) / noise
    assert posterior.variance() == pytest.approx(1.0 / precision)
    assert posterior.mean() == pytest.approx((2.0 * 12.0 / noise + sum(tokens) / noise) / precision)


@pytest.mark.parametrize("kind", ["shrunken", "beta", "dirichlet"])
def test_the_predictive_interval_covers_the_rest_of_requests_that_follow_the_model(kind):
    """Requests drawn from the law itself, each with its own α: about 80 % of the rests fall inside."""
    random = np.random.default_rng(1)
    inside, requests, n = 0, 600, 5
    for _ in range(requests):
        alpha = random.beta(12, 8)
        steps = [int(min(k, n)) for k in random.geometric(1 - alpha, 48) - 1]
        settings = PosteriorSettings(kind=kind, discount=1.0, temper=1.0, drift=0.0)
        posterior = make_posterior(2.4, 8.0, settings, n)
        for k in steps[:16]:
            posterior.update(k, n)
        low, high = posterior.predictive_interval(0.8, 32)
        inside += low <= np.mean(steps[16:]) + 1 <= high
    assert 0.75 <= inside / requests <= 0.92
