"""Requests that say what form their answer has: read where training saw some, and nothing changes where it saw none."""

from dataclasses import replace

import numpy as np
import pytest

from laps_sd.data import PromptRequest
from laps_sd.predictors import PredictorBundle, fit_bundle
from laps_sd.predictors.features.form import FORM_NAMES, form_row

FORMS = (
    {"constraint": "regex:(yes|no)"},
    {"constraint": 'json_schema:{"type":"object","properties":{"a":{"enum":[1,2]},"b":{"type":"array"}}}'},
    {"tools": 3},
    {"tools": 2, "constraint": "json_schema:"},
    {"thinking": True},
    {"thinking": False},
)


def row(**fields):
    return dict(zip(FORM_NAMES, form_row(PromptRequest("Hello", **fields)), strict=True))


def test_a_plain_request_is_a_row_of_zeros():
    assert not any(row().values())


def test_each_kind_of_form_has_its_own_number():
    assert row(constraint="regex:(yes|no)")["constraint_pattern"] == 1
    assert row(constraint="regex:(yes|no)")["log_choices"] == pytest.approx(np.log(2))
    assert row(constraint="json_schema:{}")["constraint_json"] == 1
    assert row(constraint='json_schema:{"type":"array"}')["log_lists"] == pytest.approx(np.log(2))
    assert row(tools=3)["log_tools"] == pytest.approx(np.log(4))
    assert (row(thinking=True)["thinking_on"], row(thinking=True)["thinking_off"]) == (1, 0)
    assert (row(thinking=False)["thinking_on"], row(thinking=False)["thinking_off"]) == (0, 1)


def test_a_forced_call_is_the_same_in_whatever_words_a_server_puts_it():
    assert row(tools=1, constraint="json_schema:") == row(tools=1, constraint='structural_tag:{"type":"x"}')
    assert row(tools=1, constraint="json_schema:")["must_call"] == 1
    assert row(tools=1)["must_call"] == 0


@pytest.fixture(scope="module")
def formed(records):
    """Every second answer is held to a form, and a fifth as long."""
    return [
        r.replace(output_tokens=max(1, r.output_tokens // 5), **FORMS[i % len(FORMS)]) if i % 2 else r
        for i, r in enumerate(records)
    ]


@pytest.fixture(scope="module")
def bundle(formed) -> PredictorBundle:
    return fit_bundle(formed)


@pytest.fixture(scope="module")
def plain(records) -> PredictorBundle:
    return fit_bundle(records)


def median(bundle, request):
    return bundle.predict_one(request).length.quantile(0.5)


def test_the_form_changes_the_predicted_length_where_training_saw_that_it_does(bundle, draw):
    requests = [PromptRequest.from_record(r) for r in draw(60, seed=5)]
    ratios = [median(bundle, replace(r, thinking=False)) / median(bundle, r) for r in requests]
    assert np.median(ratios) < 0.7


def test_a_form_that_training_never_saw_changes_nothing(plain, draw):
    requests = [PromptRequest.from_record(r) for r in draw(5, seed=5)]
    for request in requests:
        for form in FORMS:
            assert plain.predict_one(replace(request, **form)) == plain.predict_one(request)


def test_a_bundle_of_plain_prompts_is_the_bundle_of_before(plain):
    """Same columns, and no word of a form: what earlier versions read and wrote."""
    state = plain.length.to_state()
    features = state.meta["features"]
    assert "form" not in features
    assert len(features["names"]) == 139
    assert not set(FORM_NAMES) & set(features["names"])


def test_a_bundle_that_reads_forms_comes_back_from_its_folder(bundle, formed, tmp_path):
    bundle.save(tmp_path / "bundle")
    again = PredictorBundle.load(tmp_path / "bundle")
    for record in formed[:12]:
        request = PromptRequest.from_record(record)
        assert again.predict_one(request) == bundle.predict_one(request)


def test_a_form_read_alone_and_in_a_batch_is_the_same(bundle, formed):
    requests = [PromptRequest.from_record(r) for r in formed[:40]]
    features = bundle.length.features
    together = features.rows(requests)
    assert np.array_equal(together[:, :-1], np.concatenate([features.rows([r])[:, :-1] for r in requests]))


def test_a_kind_of_form_that_training_never_saw_is_no_distance(records):
    """Tools were never offered; whoever is served with some is not pushed out of what training knew."""
    some = [r.replace(thinking=bool(i % 4)) if i % 2 else r for i, r in enumerate(records)]
    features = fit_bundle(some).length.features
    request = PromptRequest.from_record(records[0])
    without, offered = features.rows([request, replace(request, tools=3)])
    assert without[-1] == pytest.approx(offered[-1], abs=1e-6)
    assert features.points(without[None]) == pytest.approx(features.points(offered[None]), abs=1e-6)


@pytest.fixture(scope="module")
def forced(draw):
    return [
        r.replace(request_id=f"forced/{r.request_id}", output_tokens=4000, finish_reason="length", ignore_eos=True)
        for r in draw(80, seed=9)
    ]


class TestLengthsThatWereAskedFor:
    """`ignore_eos`: an answer as long as its limit says nothing about how long answers are."""

    def test_they_teach_no_length(self, records, forced, plain):
        state, alone = (b.length.to_state() for b in (fit_bundle([*records, *forced]), plain))
        assert state.meta == alone.meta
        assert all(np.array_equal(state.arrays[name], alone.arrays[name]) for name in alone.arrays)
        assert state.texts == alone.texts

    def test_the_manifest_says_how_many_there_were(self, records, forced):
        assert fit_bundle([*records, *forced]).manifest["training"]["n_forced"] == len(forced)

    def test_as_plain_cut_answers_they_would_teach(self, records, forced, plain):
        cut = fit_bundle([*records, *[r.replace(ignore_eos=None) for r in forced]])
        request = PromptRequest.from_record(records[0])
        assert median(cut, request) != median(plain, request)
