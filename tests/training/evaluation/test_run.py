"""`evaluate`: a bundle on other requests, or a kind of bundle out-of-fold."""

import json

import numpy as np
import pytest

from laps_sd.data import PromptRequest
from laps_sd.errors import InputError
from laps_sd.predictors import fit_bundle
from laps_sd.report.evaluation import evaluation_report
from laps_sd.scheduler import SurvivalCurve
from laps_sd.training import evaluate, oof_predictions, predict_finished, run_evaluation
from laps_sd.training.evaluation.length import common_grid, noise_ceiling


@pytest.fixture(scope="module")
def bundle(records):
    return fit_bundle(records[:60])


def test_a_bundle_is_evaluated_beside_baselines_without_any_store(bundle, records):
    figures = evaluate(bundle, records[60:], log=False)
    json.dumps(figures, allow_nan=False)
    assert figures["n"] == 40
    assert figures["length"]["kendall_tau"] > figures["baselines"]["prompt_length"]["length"]["kendall_tau"]
    low, high = figures["length"]["ci_95"]["kendall_tau"]
    assert low <= figures["length"]["kendall_tau"] <= high
    assert 0 < figures["predict_ms_p50"] <= figures["predict_ms_p99"]
    assert figures["shift"]["shifted"] is False


def test_lengths_that_were_asked_for_are_not_judged(bundle, records):
    """`ignore_eos`: their acceptance counts, their length says nothing of a prediction."""
    forced = [
        r.replace(request_id=f"forced/{r.request_id}", output_tokens=4000, finish_reason="length", ignore_eos=True)
        for r in records[:20]
    ]
    alone, both = (evaluate(bundle, rows, log=False) for rows in (records[60:], [*records[60:], *forced]))
    assert both["n"] == alone["n"] + 20
    for part in ("length", "baselines", "noise_ceiling", "execution_time"):
        assert both[part] == alone[part]
    with pytest.raises(InputError, match="ignore_eos"):
        evaluate(bundle, forced, log=False)


def test_cross_validation_is_out_of_fold_and_repeatable(records):
    figures = evaluate(None, records, cv=2, log=False)
    assert figures["n"] == len(records)
    assert figures["shift"] is None
    assert 0.2 < figures["length"]["kendall_tau"] < 0.95
    assert evaluate(None, records, cv=2, log=False)["length"] == figures["length"]


def test_no_request_is_predicted_by_a_model_that_saw_its_group(records, monkeypatch):
    seen = []

    def remember(rows, **options):
        seen.append({r.group for r in rows})
        return fit_bundle(rows, predictor="constant", **{k: v for k, v in options.items() if k != "predictor"})

    predicted = []
    monkeypatch.setattr("laps_sd.training.evaluation.out_of_fold.fit_bundle", remember)
    monkeypatch.setattr(
        "laps_sd.training.evaluation.out_of_fold.predict_finished",
        lambda bundle, rows: predicted.append({r.group for r in rows}) or predict_finished(bundle, rows),
    )
    assert len(oof_predictions(records, folds=4, seed=1)) == len(records)
    assert all(not trained & tested for trained, tested in zip(seen, predicted, strict=True))


def test_either_a_bundle_or_folds(bundle, records):
    for options in ({"bundle": None}, {"bundle": bundle, "cv": 3}):
        with pytest.raises(InputError, match="either a bundle"):
            evaluate(options.pop("bundle"), records, log=False, **options)


def test_nothing_to_evaluate_is_refused(bundle, records):
    with pytest.raises(InputError, match="nothing to evaluate"):
        evaluate(bundle, [], log=False)
    with pytest.raises(InputError, match="prompt text"):
        evaluate(bundle, [r.replace(prompt=None) for r in records], log=False)


def test_one_request_gets_null_where_nothing_can_be_said(bundle, records):
    figures = evaluate(bundle, records[:1], log=False)
    assert figures["length"]["kendall_tau"] is None
    assert figures["baselines"]["constant"] is None
    json.dumps(figures, allow_nan=False)


def test_the_noise_ceiling_needs_repeats(records):
    assert noise_ceiling(records) is None
    random = np.random.default_rng(0)
    twice = [
        r.replace(request_id=f"{r.request_id}/{i}", output_tokens=1 + int(r.output_tokens * random.uniform(0.8, 1.2)),
                  verify_steps=None, correct_drafts_histogram=None, accept_lengths=None)
        for i in range(2) for r in records
    ]  # fmt: skip
    ceiling = noise_ceiling(twice)
    assert ceiling["n_prompts"] == len(records)
    assert 0.6 < ceiling["kendall_tau"] < 1.0


def test_runs_with_different_drafts_are_told_to_the_bundle(bundle, records):
    calls = []

    class Spy:
        acceptance = bundle.acceptance
        refinement = None

        def at_arrival(self, requests, *, draft, max_correct_drafts):
            calls.append((draft, max_correct_drafts, len(requests)))
            return bundle.at_arrival(requests)

    mixed = [*records[:3], records[3].replace(draft="eagle")]
    found = predict_finished(Spy(), mixed).predictions
    assert sorted(calls) == [("eagle", 3, 1), ("ngram", 3, 3)]
    assert found[3].length == bundle.predict_one(PromptRequest.from_record(records[3])).length


def test_curves_with_different_edges_meet_on_a_common_grid():
    curves = [SurvivalCurve([0, 10, 20], [1, 0.5, 0.1]), SurvivalCurve([0, 5, 40], [1, 0.9, 0.2])]
    edges, survival = common_grid(curves)
    assert edges.tolist() == [0, 5, 10, 20, 40]
    for curve, row in zip(curves, survival, strict=True):
        assert row == pytest.approx([curve.survive(t) for t in edges.tolist()])


def test_the_report_is_one_page_with_figures_plots_and_the_shift(bundle, records, tmp_path):
    moved = [r.replace(prompt="def f(x):\n    return {x: [x, 0]};\n" * 30 + r.prompt) for r in records]
    evaluation = run_evaluation(bundle, moved, log=False)
    assert evaluation.figures["shift"]["shifted"]
    evaluation_report(evaluation).write(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    for part in ("Prediction accuracy", "prompt length", "look unlike the training data", "plotly"):
        assert part in text
