"""The options of a launch: read once, handed to every process."""

import shutil
import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from laps_sd.data import PromptRequest, RequestRecord
from laps_sd.errors import InputError
from laps_sd.predictors import fit_bundle
from laps_sd.predictors.acceptance.predictor import PromptAcceptance
from laps_sd.scheduler import CostModel, PosteriorSettings
from laps_sd.serving.config import ServingConfig
from laps_sd.serving.flags import ACTIVE_ENV, Default
from laps_sd.serving.launch import Launch, load_bundle, load_served, read_launch

RECORDS = [
    RequestRecord(
        request_id=f"r{i}", prompt=f"Question {i % 7} about rivers", prompt_tokens=9, output_tokens=30 + i % 11,
        finish_reason="stop", draft="NGRAM", max_correct_drafts=7, verify_steps=12,
        correct_drafts_histogram=(4, i % 3, 8 - i % 3),
        accept_lengths=(1,) * 4 + (2,) * (i % 3) + (3,) * (8 - i % 3),
    )
    for i in range(120)
]  # fmt: skip


def flags(bundle: str | None = None, config: Path | None = None) -> Namespace:
    return Namespace(laps_sd_bundle=bundle, laps_sd_config=config, retraction_policy=Default("length"))


def test_children_read_what_the_launcher_wrote(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(ACTIVE_ENV, raising=False)
    assert Launch.from_environment() is None
    config = ServingConfig.model_validate({"record": {"path": "x.jsonl"}, "policy": {"posterior": {"kind": "beta"}}})
    for cost, version in ((None, None), (CostModel(step_s=0.02, prefill_s=0.01), "3")):
        launch = Launch("models:/m@prod", config, cost, version=version, run=version)
        monkeypatch.setenv(ACTIVE_ENV, "")
        launch.to_environment()
        assert Launch.from_environment() == launch


def test_the_cost_model_of_the_configuration_is_read_once_and_for_all_ranks(tmp_path: Path) -> None:
    (tmp_path / "cost.json").write_text(
        '{"model": {"step_s": 0.5, "prefill_s": 0.25, "prefill_s_per_token": 0}, "fit": {"n": 3}}'
    )
    (tmp_path / "config.yaml").write_text(f"{{unpredicted: true, cost_model: {tmp_path / 'cost.json'}}}")
    launch = read_launch(flags(config=tmp_path / "config.yaml"))
    assert launch.cost == CostModel(step_s=0.5, prefill_s=0.25)


def test_a_folder_without_a_bundle_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=str(tmp_path)):
        load_bundle(str(tmp_path))


@pytest.mark.parametrize("name", ["{folder}", "models:/m@production"])
def test_a_bundle_that_cannot_predict_never_reaches_the_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """What crashes or hangs does so in a child: here nothing of it is loaded."""
    from laps_sd.predictors import PredictorBundle
    from laps_sd.training import resolve

    saved = fit_bundle(RECORDS).save(tmp_path / "saved")
    monkeypatch.setattr(resolve, "_download", lambda uri, store, target: saved)
    monkeypatch.setattr("laps_sd.predictors.probe.probe", lambda bundle: f"bundle {bundle} kills the process")
    monkeypatch.setattr(PredictorBundle, "load", lambda path: pytest.fail("it was loaded"))
    with pytest.raises(InputError, match=f"bundle {saved} kills the process"):
        load_bundle(name.format(folder=saved))


def test_an_mlflow_uri_without_mlflow_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "laps_sd.training", None)
    with pytest.raises(InputError, match=r"laps-sd\[registry\]"):
        load_bundle("models:/m@production")


def test_starting_from_mlflow_leaves_no_copy_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from laps_sd.training import resolve

    saved = fit_bundle(RECORDS).save(tmp_path / "saved")
    monkeypatch.setattr(resolve, "_download", lambda uri, store, target: shutil.copytree(saved, target / "copy"))
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    launch = read_launch(flags("models:/m@production"))
    assert launch.bundle == "models:/m@production"
    assert load_bundle(launch.bundle).predict_one(PromptRequest("Question")).length.mean() > 0
    assert list(temporary.iterdir()) == []


def test_the_version_that_is_named_is_the_one_that_is_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from laps_sd.training import resolve

    bundle = fit_bundle(RECORDS)
    bundle.manifest["mlflow_run_id"] = "abc"
    saved, loaded = bundle.save(tmp_path / "saved"), []
    monkeypatch.setattr(resolve, "_download", lambda uri, store, target: loaded.append(uri) or saved)
    monkeypatch.setattr("laps_sd.training.pinned", lambda name: name.replace("@production", "/7"))
    _, launch = load_served(Launch("models:/m@production", ServingConfig()))
    assert loaded == ["models:/m/7"], "an alias that moves meanwhile changes nothing"
    assert (launch.bundle, launch.version, launch.run) == ("models:/m@production", "7", "abc")
    _, launch = load_served(Launch(str(saved), ServingConfig()))
    assert (launch.bundle, launch.version, launch.run) == (str(saved), None, "abc")
    nothing = Launch(None, ServingConfig())
    assert load_served(nothing) == (None, nothing)


def test_a_server_without_predictions_must_say_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unpredicted: true"):
        read_launch(flags())
    config = tmp_path / "c.yaml"
    config.write_text("unpredicted: true")
    assert read_launch(flags(config=config)).bundle is None


def test_a_policy_that_uses_no_predictions_needs_no_bundle(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("policy: {name: las}")
    assert read_launch(flags(config=config)).bundle is None
    config.write_text("policy: {name: sjf-predicted}")
    with pytest.raises(InputError, match="needs --laps-sd-bundle"):
        read_launch(flags(config=config))


def test_the_scheduler_updates_with_the_constants_fitted_with_the_bundle(sglang: ModuleType, tmp_path: Path) -> None:
    from laps_sd.serving.hooks.tokenizer import with_fitted_posterior

    bundle = fit_bundle(RECORDS)
    args = Namespace(
        served_model_name=None, model_path="m", speculative_algorithm="NGRAM", speculative_draft_model_path=None,
        speculative_num_draft_tokens=8, speculative_num_steps=None, speculative_eagle_topk=None,
    )  # fmt: skip
    assert isinstance(bundle.acceptance, PromptAcceptance)
    fitted = PosteriorSettings(discount=0.9, dispersion=2.0)
    runs = [replace(run, settings=fitted) for run in bundle.acceptance.runs]
    bundle.acceptance = PromptAcceptance(bundle.acceptance.features, runs)
    launch = Launch(str(tmp_path), ServingConfig())
    assert with_fitted_posterior(launch, bundle, args).config.settings().posterior == fitted
    own = Launch(str(tmp_path), ServingConfig.model_validate({"policy": {"posterior": {"discount": 0.5}}}))
    assert with_fitted_posterior(own, bundle, args) is own, "the operator's setting wins"
    assert with_fitted_posterior(launch, None, args) is launch


@pytest.mark.parametrize(("flags", "expected"), [((), "policy"), (("--retraction-policy", "length"), "sglang")])
def test_a_retraction_policy_that_was_asked_for_is_obeyed(
    parse: Callable[..., Any], tmp_path: Path, flags: tuple[str, ...], expected: str
) -> None:
    config = tmp_path / "laps-sd.yaml"
    config.write_text("unpredicted: true")
    args = parse("--schedule-policy", "laps-sd", "--laps-sd-config", str(config), *flags)
    assert args.retraction_policy == "length", "SGLang sees what it would see without us"
    assert read_launch(args).config.preemption.retraction == expected
