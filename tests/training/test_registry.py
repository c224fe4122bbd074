"""Aliases that servers follow: moved by a good verdict or on purpose, and back in one command."""

import mlflow
import pytest

from laps_sd.errors import InputError
from laps_sd.training import train
from laps_sd.training.registry import promote, roll_back
from laps_sd.training.verdict import Verdict

ONCE = {"predictor": "constant", "acceptance": "run_mean", "register": "promoted", "alias": "production"}


@pytest.fixture
def new_store(tmp_path):
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


@pytest.fixture
def again(trace, new_store, tmp_path, monkeypatch):
    """``again(good)``: train and register once more, with that verdict."""

    def run(good=False, **options):
        monkeypatch.setattr("laps_sd.training.run.verdict", lambda *_: Verdict(good, ("so it is",), ()))
        return train([trace], tmp_path / "bundle", tracking_uri=new_store, **{**ONCE, **options})

    return run


def test_an_alias_moves_to_a_good_version_and_not_to_a_doubtful_one(again, new_store):
    first = again()
    assert (first.registered, first.promotion.version) == ("models:/promoted@production", "1"), "it named none"
    doubtful = again()
    assert (doubtful.registered, doubtful.promotion) == ("models:/promoted/2", None)
    assert str(again(good=True).promotion) == "promoted, production: v1 → v3"
    assert str(again(promote=True).promotion) == "promoted, production: v3 → v4"
    assert str(roll_back("promoted", "production", new_store)) == "promoted, production: v4 → v3"
    assert str(roll_back("promoted", "production", new_store)) == "promoted, production: v3 → v4"
    assert str(promote("promoted", "production", "2", new_store)) == "promoted, production: v4 → v2"
    assert str(promote("promoted", "staging", None, new_store)) == "promoted, staging: none → v4"
    version = mlflow.MlflowClient(new_store, new_store).get_model_version("promoted", "2")
    assert version.description == "doubtful: so it is"
    assert version.tags["laps_sd.requests"] == "100"
    assert version.tags["laps_sd.served_draft"] == "ngram"


def test_a_constant_prediction_is_doubtful(trace, new_store, tmp_path):
    result = train([trace], tmp_path / "bundle", tracking_uri=new_store, **ONCE)
    assert not result.verdict.good
    assert result.to_json()["verdict"]["sentences"][0].startswith("it orders nothing")


def test_what_cannot_be_promoted_is_said(again, new_store):
    again()
    with pytest.raises(InputError, match="no registered model nobody"):
        promote("nobody", "production", None, new_store)
    with pytest.raises(InputError, match="no version 7 of promoted; there are 1"):
        promote("promoted", "production", "7", new_store)
    with pytest.raises(InputError, match="never named another version"):
        roll_back("promoted", "production", new_store)
