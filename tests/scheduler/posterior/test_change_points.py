"""How likely acceptance changed, and since when: closed formulas against integration, and what follows from them."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from laps_sd.scheduler.posterior import change_points
from laps_sd.scheduler.posterior.change_points import BLOCK, BLOCKS, NOTHING, block_of, possible_changes
from laps_sd.scheduler.posterior.factory import make_posterior
from laps_sd.scheduler.posterior.settings import PosteriorSettings

blocks = st.lists(st.integers(BLOCK, 6 * BLOCK).map(float), max_size=BLOCKS)
rests = st.integers(0, BLOCK - 1).flatmap(lambda n: st.tuples(st.just(n), st.integers(n, 6 * n)))
heads = st.lists(st.integers(BLOCK, 6 * BLOCK).map(float), max_size=12)


def joined(tokens):
    total = NOTHING
    for one in tokens:
        total = total.joined(block_of(BLOCK, one))
    return total


@given(heads, blocks, rests, st.floats(1.0, 6.0), st.floats(0.5, 300.0), st.floats(0.0, 20.0))
def test_chances_add_up_to_less_than_one_and_means_are_numbers_of_tokens(before, last, rest, expected, strength, noise):
    found = possible_changes(joined(before), last, block_of(*rest), expected, strength, noise)
    assert len(found) == (len(last) if before else max(0, len(last) - 1))
    assert 0.0 <= sum(change.chance for change in found) < 1.0 + 1e-9
    assert all(1.0 - 1e-9 <= change.mean <= 6.0 + 1e-9 for change in found)
    assert all(one.steps < other.steps for one, other in pairwise(found))


def integrated(values, steps, expected, variance, noise):
    """The density of block means, each normal around one mean that is normal itself: drawn from its definition."""
    covariance = variance * np.ones((len(values), len(values))) + np.diag(noise / np.asarray(steps))
    return stats.multivariate_normal(np.full(len(values), expected), covariance).logpdf(values)


def test_chances_are_bayes_rule_on_the_blocks():
    tokens, rest = [20.0, 24.0, 17.0, 30.0, 36.0], (3, 14.0)
    expected, strength, noise = 2.6, 30.0, 2.0
    found = possible_changes(NOTHING, tokens, block_of(*rest), expected, strength, noise)
    steps = [BLOCK] * 5 + [rest[0]]
    means = [t / n for t, n in zip([*tokens, rest[1]], steps, strict=True)]
    spread = (expected - 1.0) ** 2
    old = noise / strength + change_points._OLD_SPREAD**2 * spread
    new = change_points._NEW_SPREAD**2 * spread + 1e-4
    weights = [np.exp(integrated(means, steps, expected, old, noise))]
    for cut in range(4, 0, -1):
        first = integrated(means[:cut], steps[:cut], expected, old, noise)
        second = integrated(means[cut:], steps[cut:], expected, new, noise)
        weights.append(BLOCK * change_points._HAZARD * np.exp(first + second))
    assert [change.chance for change in found] == pytest.approx(np.array(weights[1:]) / sum(weights), rel=1e-9)


def fed(posterior, ks, n=5):
    for k in ks:
        posterior.update(k, n)
    return posterior


def start(kind="shrunken", mean=3.0, strength=40.0, drift=0.1):
    return make_posterior(mean, strength, PosteriorSettings(kind=kind, discount=1.0, drift=drift), 5)


def drawn(alpha, count, rng):
    return np.minimum(rng.geometric(1 - alpha, count) - 1, 5).tolist()


def chance_of_change(posterior):
    return sum(change.chance for change in posterior._changes(posterior._step_variance()))


@pytest.mark.parametrize("kind", ["shrunken", "beta", "dirichlet"])
def test_a_change_is_likely_after_it_and_unlikely_without(kind):
    rng = np.random.default_rng(3)
    same, other, stark = [], [], []
    for _ in range(40):
        before = drawn(0.71, 48, rng)  # three tokens per step
        same.append(chance_of_change(fed(start(kind), [*before, *drawn(0.71, 16, rng)])))
        other.append(chance_of_change(fed(start(kind), [*before, *drawn(0.25, 16, rng)])))
        stark.append(chance_of_change(fed(start(kind), [*before, *[0] * 24])))
    assert np.median(same) < 0.4
    assert np.median(other) > 1.25 * np.median(same)
    assert np.median(stark) > 0.8


@pytest.mark.parametrize("after", [16, 64])
def test_the_rest_is_covered_soon_after_a_change(after):
    """Requests of the law itself, whose rate is another one after 32 steps: about 80 % of the rests fall inside."""
    rng = np.random.default_rng(5)
    inside = []
    for _ in range(500):
        first, second = rng.beta(14, 6, 2)
        ks = [*drawn(first, 32, rng), *drawn(second, after + 60, rng)]
        posterior = fed(start(mean=3.0, strength=12.0, drift=0.0), ks[: 32 + after])
        low, high = posterior.predictive_interval(0.8, 60)
        inside.append(low <= np.mean(ks[32 + after :]) + 1 <= high)
    assert 0.73 <= np.mean(inside) <= 0.92


def test_steps_with_other_draft_lengths_tell_of_no_change():
    posterior = fed(start(), [5] * 24 + [0] * 24)
    assert chance_of_change(posterior) > 0.5
    posterior.update(1, 3)
    assert chance_of_change(posterior) == 0.0


def test_what_is_remembered_does_not_grow():
    posterior = fed(start(), [1, 2, 3, 0] * 500)
    assert len(posterior._blocks) == BLOCKS
    assert posterior._before.steps + BLOCK * BLOCKS + posterior._block_steps == 2000


def test_a_copy_remembers_for_itself():
    original = fed(start(), [1, 2] * 20)
    interval = original.predictive_interval(0.8, 30)
    fed(original.copy(), [5] * 40)
    assert original.predictive_interval(0.8, 30) == interval
