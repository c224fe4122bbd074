"""``laps-sd train`` as a person types it."""

import os
import signal
import socket
from time import monotonic

import pytest

from laps_sd.predictors import fit_bundle


def test_training_writes_bundle_store_and_json(trained, read_json):
    result = read_json(trained / "train.json")
    assert result["bundle"] == "bundle"
    assert result["experiment"] == "typed"
    assert result["registered"] == "models:/small@champion"
    assert result["metrics"]["length"]["n"] > 0
    assert (trained / "bundle" / "manifest.json").is_file()
    assert (trained / "mlflow.db").is_file()
    assert (trained / "mlartifacts").is_dir()


def test_the_json_holds_what_the_contract_promises(trained, read_json, figures_contract, lacking):
    contract = {"run_id": None, "bundle": None, "experiment": None, "metrics": figures_contract}
    found = read_json(trained / "train.json")
    assert lacking(contract, found) == []
    assert found["metrics"]["acceptance"] is not None
    assert found["metrics"]["execution_time"] is not None


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--features", "best"], "unknown feature set 'best'; known are lexical, embedding"),
        (["--predictor", "best"], "unknown length predictor 'best'; known are hazard"),
        (["--features", "embedding", "--encoder", "./nowhere"], "there is no such folder"),
        (["--encoder", "."], "an encoder is read by the features embedding and by the predictor transformer only"),
        (["--experiment", ""], "an experiment needs a name"),
        (["--register", "a/b"], "a registered model needs a name"),
        (["--register", "a", "--alias", "v3"], "neither latest nor v with a number"),
        (["--register", "a", "--alias", "latest"], "neither latest nor v with a number"),
        (["--seed", "-1"], "--seed"),
        (["--json", "."], "is a folder"),
        (["--json", "bundle/train.json"], "lies in the bundle"),
    ],
)
def test_wrong_words_are_refused_before_anything_is_made(refused, spec_trace, arguments, reason):
    assert reason in refused("train", "--data", spec_trace, "--out", "bundle", *arguments)


def test_data_that_cannot_train_are_refused_before_anything_is_made(refused, spec_trace, tmp_path):
    assert "none.jsonl: there is no such file" in refused("train", "--data", "none.jsonl", "--out", "bundle")
    (tmp_path / "few.jsonl").write_text("".join(spec_trace.read_text().splitlines(keepends=True)[:5]))
    assert "only 5 records" in refused("train", "--data", tmp_path / "few.jsonl", "--out", "bundle")


def test_a_place_for_the_bundle_that_is_taken_is_refused(refused, spec_trace):
    assert "is not a bundle" in refused("train", "--data", spec_trace, "--out", spec_trace)


def test_results_do_not_take_the_place_of_the_data(refused, spec_trace):
    assert "is read here" in refused("train", "--data", spec_trace, "--out", "bundle", "--json", spec_trace)


class TestStores:
    """A store out of reach: one sentence, exit 1, and no bundle, in seconds."""

    @pytest.fixture
    def unreachable(self, refused, spec_trace, monkeypatch):
        def train(uri):
            monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
            return refused("train", "--data", spec_trace, "--out", "bundle", code=1)

        return train

    @pytest.fixture
    def listener(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            yield listener

    def test_nobody_listens(self, unreachable, listener):
        start = monotonic()
        said = unreachable(f"http://me:secret@127.0.0.1:{listener.getsockname()[1]}")
        assert "cannot be reached: nothing listens there; name another by MLFLOW_TRACKING_URI" in said
        assert "secret" not in said
        assert monotonic() - start < 45  # MLflow alone tries for minutes

    def test_nobody_answers(self, unreachable, listener, monkeypatch):
        listener.listen()
        short = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "1"}
        monkeypatch.setattr("laps_sd.training.tracking._FIRST_CALL", short)
        assert "it does not answer" in unreachable(f"http://127.0.0.1:{listener.getsockname()[1]}")

    def test_a_file_that_cannot_be_opened_is_not_tried_for_minutes(self, unreachable, spec_trace):
        start = monotonic()
        assert "cannot be reached" in unreachable("sqlite:////proc/nowhere/mlflow.db")
        assert "file is not a database" in unreachable(f"sqlite:///{spec_trace}")
        assert monotonic() - start < 45  # MLflow alone tries for minutes


@pytest.mark.usefixtures("as_in_a_terminal")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_training_leaves_a_failed_run_and_no_bundle(at_work, typed, spec_trace, monkeypatch, number):
    import mlflow

    def interrupted(*rows, **options):
        os.kill(os.getpid(), number)
        return fit_bundle(*rows, **options)

    monkeypatch.setattr("laps_sd.training.run.fit_bundle", interrupted)
    code, _, err = typed("train", "--data", spec_trace, "--out", "stopped", "--experiment", number.name)
    assert (code, err) == (130, "laps-sd: interrupted; what was started has been stopped\n")
    assert not (at_work / "stopped").exists()
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{at_work / 'mlflow.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name(number.name).experiment_id])
    assert run.info.status == "FAILED"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
