"""The configuration file: every key documented, every mistake one sentence."""

import re
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel
from typer.testing import CliRunner

from laps_sd.cli import app
from laps_sd.declared import declared
from laps_sd.errors import InputError
from laps_sd.extensions import POLICIES
from laps_sd.scheduler import PosteriorSettings, Settings
from laps_sd.serving.config import ServingConfig, as_yaml, load_config, meaning, parse_config, servable_policies


def test_no_file_is_the_defaults() -> None:
    assert load_config(None) == ServingConfig()


def test_what_is_shown_can_be_read_back(tmp_path: Path) -> None:
    given = ServingConfig.model_validate(
        {"unpredicted": True, "record": {"path": "x.jsonl"}, "policy": {"factor": 1.5, "posterior": {"kind": "beta"}}}
    )
    path = tmp_path / "config.yaml"
    path.write_text(as_yaml(given))
    assert load_config(path) == given
    path.write_text(as_yaml(ServingConfig()))
    assert load_config(path) == ServingConfig()


def test_a_constant_of_the_policy_is_set_by_taking_its_comment_mark_away(tmp_path: Path) -> None:
    file = tmp_path / "laps-sd.yaml"
    file.write_text(as_yaml(ServingConfig()).replace("  # margin:", "  margin:"))
    assert load_config(file).policy == {"margin": Settings().margin}


def test_every_key_is_declared_with_its_meaning() -> None:
    def undeclared(model: type[BaseModel]) -> list[str]:
        known = {name for name, _, setting in declared(model) if setting.meaning}
        names = []
        for name, field in model.model_fields.items():
            inner = field.annotation
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                names += undeclared(inner) + ([] if inner.__doc__ else [name])
            elif name not in known:
                names.append(name)
        return names

    assert undeclared(ServingConfig) == []


def test_every_constant_of_the_policy_is_shown_with_its_meaning_range_and_unit() -> None:
    shown = " ".join(as_yaml(ServingConfig()).replace("#", " ").split())
    for kind in (Settings, PosteriorSettings):
        for name, _, setting in declared(kind):
            assert f"{' '.join(meaning(setting).split())} {name}:" in shown
    assert "(from 1 to 100) margin: 1.1" in shown
    assert "(from 0 to 1,000,000 verify steps) protect_steps: 4.0" in shown


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("polcy: {}", "polcy: unknown key"),
        ("record: {pth: x}", "record.pth: unknown key"),
        ("policy: {nope: 1}", "unknown key nope"),
        ("policy: {name: laps}", "unknown policy 'laps'"),
        ("policy: {name: 3}", "expected the name of a policy, got 3"),
        ("policy: {name: oracle-srpt}", "must know how long every answer will be"),
        ("policy: {name: 'laps-sd:nope'}", "unknown policy 'laps-sd:nope'"),
        ("policy: {factor: 0.5}", "factor must be from 1.001 to 100"),
        ("policy: {posterior: {knd: beta}}", "posterior"),
        ("prediction: {timeout_ms: 0}", "prediction.timeout_ms"),
        ("prediction: {timeout_ms: .nan}", "prediction.timeout_ms"),
        ("hints: 7", "hints"),
        ("[1, 2]", "keys and values"),
        ("a: b: c", "is not YAML"),
        ("unpredicted: maybe", "unpredicted"),
        ("cost_model: ''", "cost_model"),
    ],
)
def test_a_mistake_is_one_sentence_that_names_it(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_config(path)
    sentence = str(caught.value)
    assert says in sentence
    assert "--laps-sd-config" in sentence
    assert "\n" not in sentence


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.yaml"):
        load_config(tmp_path / "nothing.yaml")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "No such file"),
        ("{", "not one"),
        ('{"model": {"step_s": -1}}', "step_s"),
        ("{}", "step_s is missing"),
        ('{"step_s": 0.02}', "prefill_s is missing"),
        ("[" * 100_000, "not one"),
    ],
)
def test_a_cost_model_that_is_none_is_refused_before_the_server_starts(
    tmp_path: Path, text: str | None, says: str
) -> None:
    if text is not None:
        (tmp_path / "cost.json").write_text(text)
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"cost_model": str(tmp_path / "cost.json")}))
    with pytest.raises(InputError) as caught:
        load_config(path)
    assert says in str(caught.value)
    assert "--fit-cost-model" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_settings_reach_the_policy() -> None:
    config = parse_config({"policy": {"factor": 3.0, "posterior": {"kind": "beta"}}}, source="test")
    assert config.settings() == Settings(factor=3.0, posterior=PosteriorSettings(kind="beta"))


@pytest.mark.parametrize("name", ["las", "sjf-predicted", "laps-sd:paper"])
def test_the_policy_that_serves_is_named(tmp_path: Path, name: str) -> None:
    config = parse_config({"policy": {"name": name, "factor": 3.0}}, source="test")
    assert config.policy_name == name
    assert config.settings() == Settings(factor=3.0)
    path = tmp_path / "config.yaml"
    path.write_text(as_yaml(config))
    assert load_config(path) == config


def test_laps_sd_serves_unless_another_is_named() -> None:
    assert ServingConfig().policy_name == "laps-sd"
    assert "oracle-srpt" not in servable_policies()


def test_a_broken_policy_of_another_package_spoils_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = EntryPoint("theirs", "no_such_module:Policy", "laps_sd.policies")
    monkeypatch.setitem(POLICIES._entries, "theirs", broken)
    assert "theirs" not in servable_policies()
    with pytest.raises(InputError, match="'theirs' cannot be imported from no_such_module"):
        parse_config({"policy": {"name": "theirs"}}, source="test")


def test_what_can_serve_is_listed() -> None:
    assert {"las", "hrrn", "laps-sd", "laps-sd:paper"} <= set(servable_policies())


def test_the_command_prints_yaml_and_refuses_mistakes(tmp_path: Path) -> None:
    runner = CliRunner()
    shown = runner.invoke(app, ["config", "show"])
    assert shown.exit_code == 0
    preemption = {"enabled": True, "when_kv_full": True, "keep_kv": True, "retraction": "policy"}
    assert yaml.safe_load(shown.stdout)["preemption"] == preemption
    bad = tmp_path / "bad.yaml"
    bad.write_text("nope: 1")
    result = runner.invoke(app, ["config", "show", str(bad)])
    assert isinstance(result.exception, InputError)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"recrod": {}}, "did you mean 'record'?"),
        ({"record": {"pth": "x"}}, "did you mean 'path'?"),
        ({"policy": {"patiense": 3}}, "did you mean 'patience'?"),
        ({"policy": {"name": "laps-ds"}}, "did you mean 'laps-sd'?"),
    ],
)
def test_a_mistyped_name_is_answered_with_the_one_that_is_like_it(content: Any, says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        parse_config(content, source="file")
