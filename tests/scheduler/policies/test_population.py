"""What finished requests teach: lengths without survivorship bias, and how far predictions can be trusted."""

import numpy as np
import pytest

from laps_sd.scheduler import Prediction, Settings, SurvivalCurve, new_request
from laps_sd.scheduler.policies.population import Population


def live(population, tokens, *, ends=True, predicted_steps=0.0):
    """One request that produces ``tokens``, one a step, and then ends or is still running."""
    state = new_request(0, 5, prediction=Prediction(SurvivalCurve.exponential(50)))
    state.predicted_steps = predicted_steps
    state.steps = state.generated = tokens
    population.observe_progress(state)
    for _ in range(tokens):
        population.observe_step(1)
    if ends:
        population.observe_finish(state)


def test_before_any_evidence_every_request_has_the_same_still_to_do():
    population = Population(Settings())
    assert population.tokens_left(0, None) == population.tokens_left(5000, None)
    assert population.tokens_left(100, 150) == 50
    assert population.tokens_left(200, 150) == 0


def test_the_population_is_learned_from_finished_requests():
    population = Population(Settings())
    lengths = np.random.default_rng(0).lognormal(4, 0.5, 800).astype(int) + 1
    for n in lengths:
        live(population, int(n))
    assert population.lengths.mean() == pytest.approx(lengths.mean(), rel=0.12)
    assert population.lengths.quantile(0.5) == pytest.approx(np.median(lengths), rel=0.15)
    assert population.accept_length == pytest.approx(1.0, abs=0.01)


def test_requests_that_still_run_are_not_taken_for_short():
    """Short requests end first: whoever counts only finished ones believes that all are short."""
    naive, fair = Population(Settings()), Population(Settings())
    for i in range(400):
        long = i % 2 == 1
        live(fair, 400 if long else 20, ends=not long)
        if not long:
            live(naive, 20)
    assert fair.lengths.mean() > 3 * naive.lengths.mean()


def test_a_slot_is_released_at_the_limit_too():
    """Hazards are learned from natural ends alone; who waits for a slot is as glad of one that was cut off."""
    population = Population(Settings())
    for i in range(400):
        state = new_request(i, 5, max_new_tokens=64)
        state.generated, state.steps = 64, 32
        population.observe_departure(state)
    assert population.steps_per_request == pytest.approx(32, rel=0.05)
    never_ran = new_request(400, 5)
    population.observe_departure(never_ran)
    assert population.steps_per_request == pytest.approx(32, rel=0.05)


@pytest.mark.parametrize(
    ("error", "trust"),
    [(0.0, 0.95), (0.6, 0.95), (None, 0.0)],
)
def test_trust_follows_the_correlation_of_predicted_and_real_steps(error, trust):
    rng, population = np.random.default_rng(1), Population(Settings())
    for n in rng.lognormal(4, 0.8, 300).astype(int) + 1:
        guess = rng.lognormal(4, 0.8) if error is None else n * np.exp(rng.normal(0, error))
        live(population, int(n), predicted_steps=float(guess))
    assert population.trust == pytest.approx(trust, abs=0.05)


def test_predictions_that_are_all_alike_are_no_evidence_against_them():
    population = Population(Settings())
    for _ in range(300):
        live(population, 10, predicted_steps=10.0)
    assert population.trust == Settings().most_trust


def test_trust_can_be_switched_off():
    population = Population(Settings(trust=False))
    for n in range(1, 301):
        live(population, n, predicted_steps=301.0 - n)
    assert population.predictions.correlation() < 0
    assert population.trust == 1.0


def test_old_evidence_fades():
    """A predictor that was retrained is trusted again."""
    population = Population(Settings(memory=64))
    for n in range(1, 201):
        live(population, n, predicted_steps=201.0 - n)
    assert population.trust == 0.0
    for i in range(600):
        n = 1 + i * 37 % 200
        live(population, n, predicted_steps=float(n))
    assert population.trust == Settings().most_trust


def test_evidence_is_looked_at_and_fades_alike_after_weeks():
    """A server that has answered for long must notice a drift as fast as a young one."""
    population = Population(Settings(memory=64))
    looks = []
    prediction = Prediction(SurvivalCurve.exponential(50))
    for i in range(6_000):
        state = new_request(i, 5, prediction=prediction)
        state.predicted_steps = state.steps = state.generated = 1 + i * 37 % 200
        if population.observe_finish(state):
            looks.append(i)
    assert np.diff(looks).max() <= 64
    accept_length = population.accept_length
    for _ in range(600):
        for _ in range(100):
            population.observe_step(3)
        live(population, 1)
    assert population.accept_length > accept_length
    assert population.accept_length == pytest.approx(3.0, rel=0.1)


def answers(population, lengths, guesses, limits, sigma=0.5):
    """Requests with one token a step, each predicted around its guess and cut at its limit; the trust afterwards."""
    for n, guess, limit in zip(lengths, guesses, limits, strict=True):
        curve = SurvivalCurve.lognormal(float(guess), sigma)
        state = new_request(0, 5, prediction=Prediction(curve), max_new_tokens=int(limit))
        state.predicted_steps = curve.mean(0, int(limit))
        state.steps = state.generated = min(int(n), int(limit))
        population.observe_progress(state)
        for _ in range(state.generated):
            population.observe_step(1)
        if n >= limit:
            population.observe_cut(state)
        else:
            population.observe_finish(state)
    return population.trust


def test_answers_that_outlived_their_prediction_up_to_the_limit_count_against_it():
    """The short half is predicted well; the other half is called short too, and only the limit ends it."""
    rng, population = np.random.default_rng(2), Population(Settings())
    short = rng.lognormal(3, 0.6, 600)
    long = np.arange(600) % 2 == 1
    assert answers(population, np.where(long, 5000, short), short, np.full(600, 400)) < 0.5


@pytest.mark.parametrize("limit", [30, 60, 120, 1000])
def test_a_good_predictor_keeps_its_trust_wherever_answers_are_cut(limit):
    rng, population = np.random.default_rng(3), Population(Settings())
    guesses = rng.lognormal(4, 0.8, 600)
    lengths = guesses * np.exp(rng.normal(0, 0.5, 600))
    assert answers(population, lengths, guesses, np.full(600, limit)) > 0.8


def test_limits_that_differ_do_not_pass_for_skill():
    """Every answer is cut, at limits of all sizes, and the predictions are drawn by chance."""
    rng, population = np.random.default_rng(4), Population(Settings())
    limits = rng.lognormal(4, 1.0, 600).astype(int) + 2
    assert answers(population, np.full(600, 10**6), rng.lognormal(4, 0.8, 600), limits) < 0.5


def test_a_request_that_runs_to_its_limit_says_nothing_of_how_long_answers_are():
    population = Population(Settings())
    for i in range(400):
        live(population, 20)
        state = new_request(i, 5, max_new_tokens=2000, runs_to_limit=True)
        for tokens in range(100, 2001, 100):
            state.generated = state.steps = tokens
            population.observe_progress(state)
            population.observe_step(100, natural=False)
        population.observe_cut(state)
    assert population.lengths.mean() == pytest.approx(20, rel=0.5)
    assert population.steps_per_request == pytest.approx(1010, rel=0.2), "but a slot is released when it ends"
