"""`resolve_bundle`: folders and MLflow URIs."""

import pytest

from laps_sd.errors import InputError
from laps_sd.training import resolve_bundle


def test_a_folder_is_itself(tmp_path):
    assert resolve_bundle(tmp_path) == tmp_path
    assert resolve_bundle(str(tmp_path)) == tmp_path


def test_no_folder_is_said_with_what_to_do(tmp_path):
    with pytest.raises(InputError, match="laps-sd train"):
        resolve_bundle(tmp_path / "none")


def test_an_unknown_model_is_said(store):
    import mlflow

    mlflow.MlflowClient(tracking_uri=store).search_experiments()  # makes the store
    for uri in ("models:/nobody@champion", "models:/nobody/3", "runs:/" + "0" * 32):
        with pytest.raises(InputError, match="no model"):
            resolve_bundle(uri, tracking_uri=store)


def test_an_unknown_model_leaves_no_folder_behind(store, tmp_path, monkeypatch):
    import mlflow

    mlflow.MlflowClient(tracking_uri=store).search_experiments()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(InputError, match="no model"):
        resolve_bundle("models:/nobody@champion", tracking_uri=store)
    assert list(tmp_path.iterdir()) == []


def test_looking_for_a_model_makes_no_store(tmp_path):
    with pytest.raises(InputError, match="there is no MLflow store"):
        resolve_bundle("models:/lengths@champion")
    assert list(tmp_path.iterdir()) == []
