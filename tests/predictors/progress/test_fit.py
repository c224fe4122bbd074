"""Learning to refine: what answers tell is found, what they do not tell is left alone, and nothing leaks."""

import numpy as np
import pytest

from laps_sd.data.progress.counting import COUNTERS
from laps_sd.errors import InputError
from laps_sd.predictors import PredictorBundle, fit_bundle
from laps_sd.predictors.probe import probe
from laps_sd.predictors.progress.fit import FEWEST_ANSWERS, RefinementLoss, fit_refiner
from laps_sd.predictors.progress.rows import Rows, accept_length_after, counted, seen_at
from laps_sd.scheduler import SurvivalCurve
from laps_sd.training import evaluate, predict_finished

CURVE = SurvivalCurve.lognormal(150, 0.7)


def at_arrival(known, others):
    return [CURVE for _ in others]


@pytest.fixture(scope="module")
def bundle(counted_records):
    return fit_bundle(counted_records(300), predictor="constant", acceptance="run_mean")


def test_what_answers_tell_is_found(bundle, counted_records):
    fresh = counted_records(300, seed=1)
    figures = evaluate(bundle, fresh, log=False)["refinement"]
    assert figures["n_running"]["64"] > 200
    for checkpoint in ("64", "128"):
        assert figures["kendall_tau_refined"][checkpoint] > 0.5
        assert figures["log_error_sd_refined"][checkpoint] < 0.8 * figures["log_error_sd_arrival"][checkpoint]
        assert figures["mae_left_tokens_refined"][checkpoint] < figures["mae_left_tokens_arrival"][checkpoint]
        assert 0.7 < figures["coverage_80_refined"][checkpoint] < 0.9


def test_what_answers_do_not_tell_changes_next_to_nothing(counted_records):
    refiner = fit_refiner(counted_records(300, told=False), at_arrival)
    if refiner is None:
        return
    for record in counted_records(60, seed=2, told=False):
        for checkpoint, counts, accept_length in seen_at(record):
            refined = refiner.refine(CURVE, checkpoint, counts, accept_length)
            if refined is not None:
                assert refined.mean(checkpoint) == pytest.approx(CURVE.mean(checkpoint), rel=0.35)


def test_too_few_answers_teach_nothing(counted_records):
    assert fit_refiner(counted_records(FEWEST_ANSWERS - 1), at_arrival) is None
    plain = [r.replace(progress=None, progress_table=None) for r in counted_records(200)]
    assert fit_refiner(plain, at_arrival) is None


def test_counts_of_another_version_and_forced_lengths_are_left_out(counted_records):
    record = next(r for r in counted_records(9) if r.progress)
    assert counted(record)
    assert not counted(record.replace(progress_table="v0-abc"))
    assert not counted(record.replace(ignore_eos=True))
    assert not counted(record.replace(progress=()))


def test_the_curves_that_are_corrected_are_held_out_by_group(counted_records):
    records = counted_records(150)
    twins = [r.replace(group=f"pair {i // 2}") for i, r in enumerate(records)]
    asked = []

    def spy(known, others):
        assert not {r.group for r in known} & {r.group for r in others}
        asked.extend(r.request_id for r in others)
        return at_arrival(known, others)

    fit_refiner(twins, spy)
    assert sorted(asked) == sorted(r.request_id for r in twins if counted(r))


def test_the_same_records_and_seed_give_the_same_refinement(counted_records):
    one, other = (fit_refiner(counted_records(200), at_arrival, seed=3) for _ in range(2))
    assert one is not None
    assert one.to_state().texts == other.to_state().texts


def test_cut_answers_teach_that_they_were_longer(counted_records):
    records = counted_records(300, cap=200)
    assert any(r.censored for r in records)
    refiner = fit_refiner(records, at_arrival)
    announcing = [50 if name == "announced_items" else 4 * 64 if name == "chars" else 0 for name in COUNTERS]
    assert refiner.refine(CURVE, 64, announcing, 2.0).survive(200) > CURVE.survive(200) / CURVE.survive(64)


def test_the_gradient_is_the_slope_of_the_loss(counted_records):
    records = counted_records(80, cap=150)
    rows = Rows.of(records, [CURVE] * len(records))
    everyone = np.arange(len(rows))
    loss = RefinementLoss(rows, everyone)
    scores = np.random.default_rng(0).normal(0, 0.4, (len(rows), 2))
    gradient, curvature = loss.gradients(scores)
    assert (curvature > 0).all()
    for column in (0, 1):
        moved = np.zeros_like(scores)
        moved[:, column] = 1e-6
        slope = (loss.values(scores + moved) - loss.values(scores - moved)) / 2e-6
        assert gradient[:, column] == pytest.approx(slope, abs=1e-4)


def test_tokens_per_step_so_far_follow_the_steps_in_order(counted_records):
    (record,) = counted_records(1)
    record = record.replace(
        output_tokens=41, accept_lengths=(1,) * 20 + (4,) * 5, verify_steps=25, progress=None, progress_table=None
    )
    assert accept_length_after(record, 11) == pytest.approx(11 / 10)
    assert accept_length_after(record, 33) == pytest.approx(33 / 23)
    assert accept_length_after(record.replace(accept_lengths=None), 11) is None


def test_a_bundle_keeps_its_refinement_and_one_without_stays_without(bundle, counted_records, tmp_path):
    record = max(counted_records(30, seed=4), key=lambda r: r.output_tokens)
    loaded = PredictorBundle.load(bundle.save(tmp_path / "bundle"))
    assert predict_finished(loaded, [record]).refined == predict_finished(bundle, [record]).refined
    assert predict_finished(loaded, [record]).refined[0]
    assert probe(tmp_path / "bundle") is None
    assert loaded.manifest["refinement"] == {"checkpoints": list(bundle.refinement.checkpoints)}
    plain = PredictorBundle(bundle.length, bundle.acceptance, bundle.manifest).save(tmp_path / "plain")
    assert PredictorBundle.load(plain).refinement is None
    assert not list(plain.glob("refinement*"))


def test_answers_of_another_tokenizer_stay_as_predicted_at_arrival(bundle, counted_records):
    foreign = [r.replace(progress_table="v1-other") for r in counted_records(20, seed=5)]
    assert predict_finished(bundle, foreign).refined == [{}] * 20


def test_a_damaged_refinement_is_refused_with_one_sentence(bundle, tmp_path):
    folder = bundle.save(tmp_path / "bundle")
    text = (folder / "refinement.trees.txt").read_text()
    (folder / "refinement.trees.txt").write_text(text.replace("left_child=", "left_child=9"))
    with pytest.raises(InputError, match="is damaged"):
        PredictorBundle.load(folder)


def test_without_counted_answers_there_is_nothing_to_report(counted_records):
    plain = [r.replace(progress=None, progress_table=None) for r in counted_records(60)]
    assert evaluate(None, plain, cv=2, predictor="constant", acceptance="run_mean", log=False)["refinement"] is None
