"""The acceptance posterior: what every model promises, whatever its mathematics."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps_sd.scheduler.posterior.factory import make_posterior
from laps_sd.scheduler.posterior.settings import PosteriorSettings

KINDS = ("shrunken", "beta", "dirichlet")
kinds = st.sampled_from(KINDS)
N = 5
accepts = st.lists(st.integers(0, N), max_size=60)
priors = st.floats(1.0, N + 1.0)
strengths = st.floats(0.5, 200.0)


def start(kind, prior=2.5, strength=16.0, n=N, **constants):
    return make_posterior(prior, strength, PosteriorSettings(kind=kind, **constants), n)


def told(posterior, ks, n=N):
    for k in ks:
        posterior.update(k, n)
    return posterior


@given(kinds, st.floats(1.01, N + 0.99), strengths)
def test_before_any_step_the_mean_is_the_prior(kind, prior, strength):
    posterior = start(kind, prior, strength)
    assert posterior.steps == 0
    assert posterior.mean() == pytest.approx(prior, abs=2e-3)


@given(kinds, priors, strengths, accepts)
def test_mean_and_intervals_stay_within_what_a_step_can_emit(kind, prior, strength, ks):
    posterior = told(start(kind, prior, strength), ks)
    mean = posterior.mean()
    assert 1.0 <= mean <= N + 1.0 + 1e-9
    for low, high in (posterior.interval(), posterior.predictive_interval(0.8, 20)):
        assert 1.0 <= low <= high <= N + 1.0 + 1e-6
    assert 1.0 / (N + 1.0) - 1e-9 <= posterior.steps_per_token() <= 1.0
    assert posterior.variance() >= 0.0


@given(kinds, st.lists(st.integers(0, N), max_size=4), st.randoms())
def test_without_discount_the_order_of_the_first_steps_does_not_matter(kind, ks, random):
    """Of more steps it may: a change in the midst of a request is followed, and what went before loses its weight."""
    shuffled = list(ks)
    random.shuffle(shuffled)
    one, other = (told(start(kind, discount=1.0), order) for order in (ks, shuffled))
    assert one.mean() == pytest.approx(other.mean(), rel=1e-12)
    assert one.interval() == pytest.approx(other.interval(), rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_with_discount_recent_steps_count_more(kind):
    rising, falling = (told(start(kind, discount=0.9), ks) for ks in ([0] * 20 + [5] * 20, [5] * 20 + [0] * 20))
    assert rising.mean() > falling.mean() + 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_evidence_moves_the_mean_towards_it_and_the_prior_holds_back(kind):
    weak, strong = (told(start(kind, 2.0, strength), [5] * 10).mean() for strength in (2.0, 100.0))
    assert 2.0 < strong < weak < 6.0


@pytest.mark.parametrize("kind", KINDS)
def test_many_steps_overrule_any_prior(kind):
    posterior = told(start(kind, 5.5, 8.0, discount=1.0), [1] * 4000)
    assert posterior.mean() == pytest.approx(2.0, abs=0.02) or kind == "beta"
    # A chain that always accepts exactly one draft contradicts the geometric law, which yet learns its α = 1/2.
    assert kind != "beta" or posterior.mean() == pytest.approx(sum(0.5**j for j in range(N + 1)), abs=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_a_vague_prior_becomes_perceptible_by_steps_and_a_strong_one_is_at_arrival(kind):
    vague, strong = start(kind, 2.5, 2.0, discount=1.0), start(kind, 2.5, 400.0)
    assert strong.stable(0.35)
    assert not vague.stable(0.35)
    assert told(vague, [1, 3, 0, 2, 1, 2, 5, 0] * 40).stable(0.35)


@given(kinds, accepts, st.floats(1.0, 400.0))
def test_fewer_remaining_steps_are_less_certain(kind, ks, remaining):
    posterior = told(start(kind, drift=0.0), ks)
    wide = posterior.predictive_interval(0.8, remaining)
    narrow = posterior.predictive_interval(0.8, 2 * remaining)
    assert wide[0] <= narrow[0] <= narrow[1] <= wide[1]


@given(kinds, accepts)
def test_drift_widens_what_is_predicted_but_not_what_is_believed(kind, ks):
    still, drifting = (told(start(kind, drift=drift), ks) for drift in (0.0, 0.5))
    assert still.interval() == pytest.approx(drifting.interval())
    a, b = still.predictive_interval(0.8, 50), drifting.predictive_interval(0.8, 50)
    assert b[1] - b[0] >= a[1] - a[0]


@given(kinds, accepts)
def test_a_higher_level_gives_a_wider_interval(kind, ks):
    posterior = told(start(kind), ks)
    narrow, wide = posterior.interval(0.5), posterior.interval(0.95)
    assert wide[0] <= narrow[0] <= narrow[1] <= wide[1]


@given(kinds, accepts, accepts)
def test_a_copy_goes_its_own_way(kind, ks, more):
    original = told(start(kind), ks)
    mean = original.mean()
    twin = original.copy()
    told(twin, [*more, 5])
    assert original.mean() == mean
    assert twin.mean() == told(told(start(kind), ks), [*more, 5]).mean()


@pytest.mark.parametrize("kind", KINDS)
def test_more_drafts_never_emit_fewer_tokens(kind):
    posterior = told(start(kind), [2, 1, 5, 0, 3])
    means = [posterior.mean(n) for n in range(9)]
    assert means[0] == pytest.approx(1.0)
    assert means == sorted(means)


@pytest.mark.parametrize("kind", KINDS)
def test_draft_length_may_change_at_run_time(kind):
    posterior = start(kind, n=3)
    for k, n in ((3, 3), (7, 7), (2, 2), (0, 9), (9, 9)):
        posterior.update(k, n)
    assert 1.0 <= posterior.mean() <= 10.0
    low, high = posterior.predictive_interval(0.8, 10)
    assert low <= posterior.mean() <= high


@pytest.mark.parametrize("kind", KINDS)
def test_without_drafts_a_step_is_a_token(kind):
    posterior = told(start(kind, 1.0, n=0), [0, 0], n=0)
    assert posterior.mean() == pytest.approx(1.0)
    assert posterior.steps_per_token() == pytest.approx(1.0)
    assert posterior.stable(0.1)


def test_draft_length_need_not_be_known_in_advance():
    posterior = make_posterior(3.0, 4.0)
    posterior.update(8, 8)
    assert 3.0 < posterior.mean() < 9.0
    assert posterior.interval()[1] <= 9.0


@given(kinds, accepts)
def test_expected_steps_per_token_allow_for_uncertainty(kind, ks):
    posterior = told(start(kind), ks)
    assert posterior.steps_per_token() >= min(1.0, 1.0 / posterior.mean()) - 1e-12  # Jensen


@pytest.mark.parametrize(
    ("prior", "strength", "drafts", "named"),
    [
        (0.9, 8.0, 5, "accept length"),
        (math.nan, 8.0, 5, "accept length"),
        (2.0, 0.0, 5, "strength"),
        (2.0, math.inf, 5, "strength"),
        (2.0, 8.0, -1, "max_correct_drafts"),
    ],
)
def test_a_prior_that_makes_no_sense_is_refused_by_name(prior, strength, drafts, named):
    with pytest.raises(ValueError, match=named):
        make_posterior(prior, strength, None, drafts)


@pytest.mark.parametrize(
    ("name", "value"),
    [("kind", "magic"), ("discount", 0.0), ("discount", 1.1), ("dispersion", 0.0), ("temper", 2.0), ("drift", -0.1)],
)
def test_a_constant_out_of_bounds_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=name):
        replace(PosteriorSettings(), **{name: value})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("k", "n"), [(-1, 5), (6, 5)])
def test_a_step_that_cannot_be_is_refused(kind, k, n):
    with pytest.raises(ValueError, match="between 0 and n"):
        start(kind).update(k, n)


@pytest.mark.parametrize("kind", KINDS)
def test_questions_that_make_no_sense_are_refused(kind):
    posterior = start(kind)
    with pytest.raises(ValueError, match="level"):
        posterior.interval(1.0)
    with pytest.raises(ValueError, match="remaining_steps"):
        posterior.predictive_interval(0.8, 0)
