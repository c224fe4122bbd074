"""Finished requests are predicted in one way, whoever asks."""

import pytest

from laps_sd.data import RequestRecord
from laps_sd.errors import InputError
from laps_sd.predictors import PredictorBundle, fit_bundle
from laps_sd.simulation.replay import PredictionsOption, find_predictions
from laps_sd.training import load_bundle, predict_finished


@pytest.fixture(scope="module")
def outcome_told(records) -> list[RequestRecord]:
    """Records whose draft length is what each happened to accept: it would tell the outcome."""
    rows = []
    for i, record in enumerate(records):
        most = 1 + i % 4
        histogram = tuple(10 if k == most else 0 for k in range(most + 1))
        rows.append(
            record.replace(
                max_correct_drafts=most,
                verify_steps=10,
                accept_lengths=(most + 1,) * 10,
                correct_drafts_histogram=histogram,
                output_tokens=10 * (most + 1) + 1,
            )
        )
    return rows


@pytest.fixture(scope="module")
def folder(outcome_told, tmp_path_factory) -> str:
    return str(fit_bundle(outcome_told).save(tmp_path_factory.mktemp("bundle") / "b"))


def test_simulate_predicts_what_evaluate_does(outcome_told, folder):
    replayed = find_predictions(PredictionsOption("bundle"), outcome_told, bundle=folder, seed=0)
    evaluated = predict_finished(load_bundle(folder), outcome_told)
    assert replayed.predictions == evaluated.predictions
    assert evaluated.priors is not None
    assert [p.accept_length for p in replayed.predictions] == [prior.mean for prior in evaluated.priors]


def test_a_draft_length_that_was_read_off_the_outcome_reaches_no_predictor(outcome_told, folder):
    bundle = load_bundle(folder)
    told: list[int | None] = []

    class Spy(PredictorBundle):
        def at_arrival(self, requests, *, draft=None, max_correct_drafts=None):
            told.append(max_correct_drafts)
            return super().at_arrival(requests, draft=draft, max_correct_drafts=max_correct_drafts)

    predict_finished(Spy(bundle.length, bundle.acceptance, bundle.manifest), outcome_told)
    assert told == [4]


def test_without_acceptance_data_there_are_no_priors(records):
    bare = [r.replace(accept_lengths=None, correct_drafts_histogram=None, verify_steps=None) for r in records]
    found = predict_finished(fit_bundle(bare, predictor="constant"), bare)
    assert len(found.predictions) == len(bare)
    assert found.priors is None


def test_a_record_without_prompt_is_refused(records, folder):
    with pytest.raises(InputError, match="prompt text"):
        predict_finished(load_bundle(folder), [records[0].replace(prompt=None)])
