"""What one number of a request does to its accept length, whatever the prompt says."""

import numpy as np
import pytest

from laps_sd.data import PromptRequest, RequestRecord
from laps_sd.predictors.acceptance.effects import Effects, fit_effects
from laps_sd.predictors.acceptance.fit import fit_acceptance
from laps_sd.predictors.acceptance.predictor import PromptAcceptance
from laps_sd.predictors.rows import grouped_folds

TOKENS = (46, 280, 1060, 2620, 6520, 13020, 23420)
WORDS = ["river", "table", "green", "light", "paper", "stone", "music", "ocean", "train", "garden"]


def mean_at(tokens: int) -> float:
    """Drafts that do badly on long contexts: 3.6 tokens a step on short prompts, 1.3 on the longest."""
    return 1.0 + 2.6 * (1.0 - tokens / 26_000)


def request(tokens: int, temperature: float | None, random: np.random.Generator) -> PromptRequest:
    words = " ".join(random.choice(WORDS, 2))
    return PromptRequest(f"Answer the question ({words})", prompt_tokens=tokens, temperature=temperature, turns=3)


def record(i: int, asked: PromptRequest, mean: float, random: np.random.Generator) -> RequestRecord:
    accepted = random.binomial(5, (mean - 1.0) / 5, 60)
    histogram = tuple(int(n) for n in np.bincount(accepted, minlength=6))
    return RequestRecord(
        request_id=str(i),
        prompt=asked.prompt,
        prompt_tokens=asked.prompt_tokens or 0,
        temperature=asked.temperature,
        turns=asked.turns,
        output_tokens=int(accepted.sum()) + 60,
        finish_reason="stop",
        model="m",
        draft="EAGLE3",
        max_correct_drafts=5,
        verify_steps=60,
        correct_drafts_histogram=histogram,
        group=str(i),
    )


def test_hundreds_of_long_prompts_are_not_shrunk_to_the_middle():
    random = np.random.default_rng(0)
    asked = [request(int(t), None, random) for t in random.choice(TOKENS, 400)]
    model = fit_acceptance([record(i, r, mean_at(r.prompt_tokens or 0), random) for i, r in enumerate(asked)])
    predicted = model.predict_prior([request(t, None, random) for t in TOKENS])[0]
    assert predicted == pytest.approx([mean_at(t) for t in TOKENS], rel=0.08)


def test_a_temperature_at_which_drafts_fail_is_not_either():
    random = np.random.default_rng(1)
    asked = [request(200, float(t), random) for t in random.choice([0.0, 0.7, 1.5], 300, p=[0.8, 0.1, 0.1])]
    mean = {0.0: 3.5, 0.7: 2.6, 1.5: 1.5}
    model = fit_acceptance([record(i, r, mean[r.temperature or 0.0], random) for i, r in enumerate(asked)])
    predicted = model.predict_prior([request(200, t, random) for t in mean])[0]
    assert predicted == pytest.approx(list(mean.values()), rel=0.1)


def test_numbers_that_say_nothing_get_no_effect():
    random = np.random.default_rng(2)
    asked = [request(int(t), None, random) for t in random.choice(TOKENS, 200)]
    model = fit_acceptance([record(i, r, float(random.normal(2.5, 0.2)), random) for i, r in enumerate(asked)])
    assert isinstance(model, PromptAcceptance)
    assert model.runs[0].effects is None


def test_a_model_with_effects_is_rebuilt_exactly_and_checked():
    random = np.random.default_rng(3)
    asked = [request(int(t), None, random) for t in random.choice(TOKENS, 120)]
    model = fit_acceptance([record(i, r, mean_at(r.prompt_tokens or 0), random) for i, r in enumerate(asked)])
    assert isinstance(model, PromptAcceptance)
    assert model.runs[0].effects is not None
    state = model.to_state()
    assert PromptAcceptance.from_state(state).priors(asked[:9]) == model.priors(asked[:9])
    broken = dict(state.arrays) | {"0/effects/0": state.arrays["0/effects/0"][:, ::-1]}
    with pytest.raises(ValueError, match="knots"):
        PromptAcceptance.from_state(type(state)(state.kind, state.meta, broken, state.texts))


class TestFunctions:
    def test_each_fold_is_predicted_from_the_others(self):
        random = np.random.default_rng(4)
        numbers, target, weight = random.normal(size=(90, 2)), random.normal(size=90), np.ones(90)
        folds = grouped_folds(None, 90, 3, 0)
        changed = target.copy()
        changed[folds[0]] += 5.0
        before, after = (fit_effects(numbers, t, weight, folds, 2.5)[1] for t in (target, changed))
        assert np.array_equal(before[folds[0]], after[folds[0]])
        assert not np.array_equal(before[folds[1]], after[folds[1]])

    def test_beyond_what_was_seen_a_function_is_constant(self):
        effects = Effects((np.array([0.0, 1.0]),), (np.array([-0.5, 0.5]),))
        assert effects.predict(np.array([[-9.0], [0.5], [9.0]])).tolist() == [-0.5, 0.0, 0.5]

    def test_a_few_that_loop_do_not_bend_a_function(self):
        random = np.random.default_rng(5)
        numbers = random.uniform(0, 1, (300, 1))
        target = 0.3 * numbers[:, 0] + random.normal(0, 0.05, 300)
        target[:6] += 3.0
        effects, _ = fit_effects(numbers, target - target.mean(), np.ones(300), grouped_folds(None, 300, 5, 0), 2.5)
        slope = np.diff(effects.predict(np.array([[0.1], [0.9]])))[0] / 0.8
        assert slope == pytest.approx(0.3, abs=0.08)
