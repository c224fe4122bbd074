"""`train`: a bundle, and an MLflow run that tells how it came about; or one sentence and neither."""

import json

import mlflow
import msgspec
import pytest

from laps_sd.data import PromptRequest, write_records
from laps_sd.errors import InputError, WorkError
from laps_sd.predictors import PredictorBundle
from laps_sd.training import evaluate, resolve_bundle, train

EVALUATION_KEYS = {
    "n",
    "n_censored",
    "length",
    "acceptance",
    "execution_time",
    "refinement",
    "baselines",
    "noise_ceiling",
    "shift",
    "predict_ms_p50",
    "predict_ms_p99",
}


@pytest.fixture(scope="module")
def trained(trace, store, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "bundle"
    return train([trace], out, register="lengths", tracking_uri=store, experiment="tests")


@pytest.fixture
def client(store):
    return mlflow.MlflowClient(tracking_uri=store, registry_uri=store)


def runs(client):
    return [r for e in client.search_experiments() for r in client.search_runs([e.experiment_id])]


def test_the_result_is_the_json_of_the_contract(trained):
    result = json.loads(json.dumps(trained.to_json(), allow_nan=False))
    assert {"run_id", "bundle", "experiment", "metrics"} <= set(result)
    assert set(result["metrics"]) == EVALUATION_KEYS
    assert set(result["metrics"]["baselines"]) == {"constant", "prompt_length", "category", "asked_for"}


def test_the_bundle_predicts_and_carries_its_metrics_and_run(trained):
    bundle = PredictorBundle.load(trained.bundle)
    assert bundle.predict_one(PromptRequest(prompt="Write a story.")).length.mean() > 1
    assert bundle.manifest["metrics"]["validation"]["length"] == trained.metrics["length"]
    assert bundle.manifest["mlflow_run_id"] == trained.run_id
    assert bundle.manifest["training"]["n"] == 100


def test_with_many_requests_the_evaluated_model_is_the_bundle(trace, store, tmp_path, monkeypatch):
    monkeypatch.setattr("laps_sd.training.run._ENOUGH_ROWS", 50)
    monkeypatch.setattr("laps_sd.training.run._CURVE_ROWS", 0)
    result = train([trace], tmp_path / "bundle", predictor="constant", tracking_uri=store, experiment="tests")
    assert PredictorBundle.load(result.bundle).manifest["training"]["n"] + result.metrics["n"] == 100


def test_no_alias_moves_to_a_model_whose_bundle_was_not_written(trained, trace, store, client, tmp_path, monkeypatch):
    before = client.get_model_version_by_alias("lengths", "champion").version
    real = PredictorBundle.save

    def full_disk(bundle, target):
        if target == tmp_path / "bundle":
            raise WorkError("the disk is full")
        return real(bundle, target)

    monkeypatch.setattr(PredictorBundle, "save", full_disk)
    with pytest.raises(WorkError, match="full"):
        train([trace], tmp_path / "bundle", predictor="constant", register="lengths", tracking_uri=store)
    assert client.get_model_version_by_alias("lengths", "champion").version == before


def test_prompts_of_one_group_are_refused_before_any_run(records, store, client, tmp_path):
    alike = [msgspec.structs.replace(r, group="one") for r in records]
    before = len(runs(client))
    with pytest.raises(InputError, match="at least two groups"):
        train(alike, tmp_path / "bundle", tracking_uri=store)
    assert len(runs(client)) == before


def test_the_run_is_finished_with_parameters_metrics_data_set_and_plots(trained, client):
    run = client.get_run(trained.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["features"] == "lexical"
    assert run.data.params["seed"] == "0"
    assert run.data.metrics["length.kendall_tau"] == pytest.approx(trained.metrics["length"]["kendall_tau"])
    (used,) = run.inputs.dataset_inputs
    assert used.dataset.name == "trace.jsonl"
    assert {t.value for t in used.tags} == {"training"}
    plots = {a.path for a in client.list_artifacts(trained.run_id, "plots")}
    names = ("predicted_vs_true", "calibration", "coverage", "survival_curves", "error_by_category", "error_by_length")
    assert {f"plots/{name}.html" for name in (*names, "learning_curve")} <= plots


def test_prompts_are_not_copied_into_the_store(trained, client, records):
    (used,) = client.get_run(trained.run_id).inputs.dataset_inputs
    assert records[0].prompt not in used.dataset.profile + used.dataset.schema


@pytest.mark.parametrize("uri", ["models:/lengths@champion", "models:/lengths/1", "runs:/{run}/bundle", "runs:/{run}"])
def test_every_uri_of_the_model_resolves_to_the_bundle(trained, store, uri):
    folder = resolve_bundle(uri.format(run=trained.run_id), tracking_uri=store)
    requests = [PromptRequest(prompt="Name a colour."), PromptRequest(prompt="Tell me a story.")]
    assert PredictorBundle.load(folder).predict(requests) == PredictorBundle.load(trained.bundle).predict(requests)


def test_the_logged_model_has_a_loader_module_and_a_signature_and_no_pickle(trained, store):
    folder = resolve_bundle("models:/lengths@champion", tracking_uri=store).parents[1]
    description = (folder / "MLmodel").read_text()
    assert "loader_module: laps_sd.training.loader" in description
    assert "signature:" in description
    assert (folder / "input_example.json").is_file()
    assert not [f for f in folder.rglob("*") if f.suffix in {".pkl", ".pickle", ".joblib"}]


def test_mlflow_itself_can_load_and_run_the_model(trained):
    import pandas as pd

    from laps_sd.training.loader import _load_pyfunc

    model = _load_pyfunc(str(trained.bundle))
    frame = pd.DataFrame({"prompt": ["Tell me a story.", "Is it?"], "temperature": [0.5, None]})
    result = model.predict(frame)
    assert list(result["length_p10"] < result["length_p90"]) == [True, True]
    assert (result["accept_length"] >= 1).all()


def test_a_later_evaluation_joins_the_training_run(trained, trace, store, client):
    figures = evaluate(trained.bundle, [trace], tracking_uri=store, run_id=trained.run_id)
    assert set(figures) == EVALUATION_KEYS
    run = client.get_run(trained.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.metrics["evaluation.length.kendall_tau"] == pytest.approx(figures["length"]["kendall_tau"])


def test_where_mlflow_points_is_left_as_it_was(trained, trace, store):
    before = mlflow.get_tracking_uri()
    evaluate(trained.bundle, [trace], tracking_uri=store)
    assert mlflow.get_tracking_uri() == before
    assert mlflow.active_run() is None


class TestRefusals:
    """One sentence, no bundle, no run left RUNNING."""

    @pytest.fixture(autouse=True)
    def _nothing_is_left(self, tmp_path, client):
        yield
        assert not (tmp_path / "bundle").exists()
        assert all(r.info.status in {"FINISHED", "FAILED"} for r in runs(client))

    def refuse(self, rows, tmp_path, store, reason, error=InputError):
        path = tmp_path / "rows.jsonl"
        write_records(path, rows)
        with pytest.raises(error, match=reason) as caught:
            train([path], tmp_path / "bundle", tracking_uri=store, experiment="tests")
        assert "\n" not in str(caught.value)

    def test_too_few_rows(self, records, tmp_path, store):
        self.refuse(records[:10], tmp_path, store, "only 10 records")

    def test_all_requests_cut(self, records, tmp_path, store):
        cut = [r.replace(finish_reason="length") for r in records]
        self.refuse(cut, tmp_path, store, "no ending was seen")

    def test_no_prompt_text(self, records, tmp_path, store):
        self.refuse([r.replace(prompt=None) for r in records], tmp_path, store, "prompt text")

    def test_a_constant_target(self, records, tmp_path, store):
        same = [r.replace(output_tokens=7, verify_steps=None, correct_drafts_histogram=None, accept_lengths=None)
                for r in records]  # fmt: skip
        self.refuse(same, tmp_path, store, "the same output length")

    def test_not_a_number_in_the_data(self, records, tmp_path, store, trace):
        path = tmp_path / "rows.jsonl"
        path.write_text(trace.read_text().replace('"output_tokens":', '"output_tokens":NaN,"was":', 1))
        with pytest.raises(InputError, match="line 1"):
            train([path], tmp_path / "bundle", tracking_uri=store)

    def test_one_group_only(self, records, tmp_path, store):
        self.refuse([r.replace(group="one") for r in records], tmp_path, store, "two groups")

    def test_a_fit_that_fails_leaves_a_failed_run_with_the_reason(self, trace, tmp_path, store, client, monkeypatch):
        def broken(*_args, **_options):
            raise WorkError("the learner gave up")

        monkeypatch.setattr("laps_sd.training.run.fit_bundle", broken)
        with pytest.raises(WorkError, match="gave up"):
            train([trace], tmp_path / "bundle", tracking_uri=store, experiment="broken")
        (run,) = client.search_runs([client.get_experiment_by_name("broken").experiment_id])
        assert run.info.status == "FAILED"
        assert run.data.tags["laps_sd.failure"] == "the learner gave up"

    def test_an_interrupt_leaves_a_failed_run_too(self, trace, tmp_path, store, client, monkeypatch):
        def interrupted(*_args, **_options):
            raise KeyboardInterrupt

        monkeypatch.setattr("laps_sd.training.run.log_model", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train([trace], tmp_path / "bundle", tracking_uri=store, experiment="interrupted")
        (run,) = client.search_runs([client.get_experiment_by_name("interrupted").experiment_id])
        assert run.info.status == "FAILED"

    def test_a_place_that_is_taken_is_refused_before_any_work(self, trace, tmp_path, store):
        (tmp_path / "taken").mkdir()
        (tmp_path / "taken" / "file").write_text("mine")
        with pytest.raises(InputError, match="not a bundle"):
            train([trace], tmp_path / "taken", tracking_uri=store)

    def test_a_store_that_cannot_be_opened(self, trace, tmp_path):
        with pytest.raises(WorkError, match="MLflow store"):
            train([trace], tmp_path / "bundle", tracking_uri="sqlite:////proc/nowhere/mlflow.db")
