"""The default length model: better than the baselines, honest about cut requests, calibrated."""

import numpy as np
import pytest
from scipy.stats import kendalltau

from laps_sd.data import PromptRequest
from laps_sd.predictors.length.baselines import PromptLength
from laps_sd.predictors.length.boosting import HazardLoss, boost, fit_linear
from laps_sd.predictors.length.buckets import log_edges, quantiles
from laps_sd.predictors.length.hazard import HazardLength
from laps_sd.predictors.length.hazard_curves import HazardGrid


def split_up(records):
    cut = len(records) * 2 // 3
    return records[:cut], records[cut:]


def arrays(records):
    requests = [PromptRequest.from_record(r) for r in records]
    tokens = np.array([r.output_tokens for r in records], dtype=float)
    return requests, tokens, np.array([r.censored for r in records])


@pytest.fixture(scope="module")
def learned(draw):
    train, test = split_up(draw(600, seed=3))
    requests, tokens, cut = arrays(train)
    return HazardLength(folds=3).fit(requests, tokens, cut), test


def test_it_orders_unseen_prompts_far_better_than_prompt_length(learned, draw):
    model, test = learned
    requests, tokens, _ = arrays(test)
    train, _ = split_up(draw(600, seed=3))
    baseline = PromptLength().fit(*arrays(train)[:2])
    tau = kendalltau(model.predict(requests), tokens).statistic
    assert tau > 0.55
    assert tau > kendalltau(baseline.predict(requests), tokens).statistic + 0.2


def test_its_80_percent_intervals_hold_about_80_percent(learned):
    model, test = learned
    requests, tokens, _ = arrays(test)
    survival = model.predict_survival(requests)
    low, high = quantiles(survival, model.edges_, 0.1), quantiles(survival, model.edges_, 0.9)
    assert 0.7 <= np.mean((np.floor(low) <= tokens) & (tokens <= np.ceil(high))) <= 0.9


def test_cut_requests_are_not_taken_for_short_ones(draw):
    whole, cut = draw(400, seed=5), draw(400, seed=5, cap=120)
    requests, tokens, _ = arrays(whole)
    _, seen, censored = arrays(cut)
    assert 0.1 < censored.mean() < 0.6
    honest = HazardLength(folds=2).fit(requests, seen, censored)
    naive = HazardLength(folds=2).fit(requests, seen)
    long = tokens > 150
    # At the cap itself: how likely is it that a long answer goes on?
    at_cap = np.searchsorted(honest.edges_, 115)
    goes_on = honest.predict_survival(requests)[long, at_cap].mean()
    assert goes_on > naive.predict_survival(requests)[long, np.searchsorted(naive.edges_, 115)].mean() + 0.1


def test_a_cap_known_only_of_the_cut_requests_is_not_read(draw):
    records = draw(200, seed=6, cap=100)
    requests = [PromptRequest(prompt=r.prompt or "", max_new_tokens=100 if r.censored else None) for r in records]
    _, tokens, cut = arrays(records)
    model = HazardLength(folds=2).fit(requests, tokens, cut)
    open_end, capped = (
        PromptRequest(prompt="Name a colour."),
        PromptRequest(prompt="Name a colour.", max_new_tokens=100),
    )
    assert np.array_equal(model.predict_survival([open_end]), model.predict_survival([capped]))


def test_the_seed_changes_the_model_and_nothing_else_does(draw):
    requests, tokens, cut = arrays(draw(120, seed=7))
    zero, one = (HazardLength(folds=2, seed=s).fit(requests, tokens, cut).predict(requests) for s in (0, 1))
    assert not np.array_equal(zero, one)


def test_many_requests_are_fitted_on_four_fifths_and_calibrated_on_the_rest(draw, monkeypatch):
    monkeypatch.setattr("laps_sd.predictors.length.hazard._LARGE", 400)
    train, test = split_up(draw(1200, seed=3))
    requests, tokens, cut = arrays(train)
    grown = []
    real = boost
    monkeypatch.setattr(
        "laps_sd.predictors.length.hazard.boost",
        lambda rows, *a, **more: grown.append(len(rows)) or real(rows, *a, **more),
    )
    model = HazardLength().fit(requests, tokens, cut)
    assert grown == [640]
    requests, tokens, _ = arrays(test)
    assert kendalltau(model.predict(requests), tokens).statistic > 0.55


@pytest.mark.parametrize("seed", range(6))
def test_a_handful_of_requests_is_never_ordered_in_reverse(draw, seed):
    """Where prompts tell nothing, held-out scores are below average where lengths are above."""
    requests, tokens, _ = arrays(draw(24, seed=seed))
    tokens = np.random.default_rng(seed).permutation(tokens)
    predicted = HazardLength().fit(requests, tokens).predict(requests)
    if np.ptp(predicted) > 0:
        assert kendalltau(predicted, tokens).statistic > 0


def test_groups_keep_copies_of_a_prompt_on_one_side():
    # Every prompt twice: without groups the inner folds would find each one's copy and trust it blindly.
    random = np.random.default_rng(0)
    texts = [f"topic {i} " + " ".join(random.choice(list("abcdefgh"), 6)) for i in range(60)] * 2
    tokens = np.tile(np.exp(random.normal(5.0, 1.0, 60)), 2)
    groups = np.tile(np.arange(60), 2)
    fresh = [f"subject {i} " + " ".join(random.choice(list("abcdefgh"), 6)) for i in range(60)]
    spread = {}
    for name, labels in {"grouped": groups, "ungrouped": None}.items():
        predicted = HazardLength(folds=3).fit(texts, tokens, groups=labels).predict(texts)
        spread[name] = np.std(np.log(predicted))
    assert spread["grouped"] < spread["ungrouped"]
    assert len(fresh) == 60


class TestLoss:
    tokens = np.array([3.0, 40.0, 200.0, 200.0])
    censored = np.array([False, False, False, True])

    def loss(self):
        grid = HazardGrid.of(self.tokens, self.censored, log_edges(self.tokens, 8), 3)
        return HazardLoss(grid, self.tokens, self.censored)

    def test_its_gradient_is_that_of_its_value(self):
        loss, scores = self.loss(), np.random.default_rng(0).normal(0.0, 0.5, (4, 3))
        gradient, _ = loss.gradients(scores)
        for i in range(4):
            for k in range(3):
                step = np.zeros_like(scores)
                step[i, k] = 1e-2
                slope = (loss.value(scores + step)[1] - loss.value(scores - step)[1]) / 2e-2
                assert gradient[i, k] / 4 == pytest.approx(slope, abs=2e-3)

    def test_raising_the_hazard_of_a_cut_request_only_costs(self):
        loss = self.loss()
        gradient, _ = loss.gradients(np.zeros((4, 3)))
        assert gradient[3, 0] > 0  # level up: more likely to have ended before the cut

    def test_a_linear_fit_finds_the_direction(self):
        random = np.random.default_rng(1)
        x = random.normal(size=300)
        tokens = np.exp(4.0 + 0.8 * x + 0.3 * random.normal(size=300))
        none = np.zeros(300, bool)
        grid = HazardGrid.of(tokens, none, log_edges(tokens), 2)
        weights = fit_linear(np.column_stack([np.ones(300), x]), grid, tokens, none)
        assert weights[1, 0] < -0.5  # longer answers: lower hazard
