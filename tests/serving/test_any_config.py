"""Whatever the configuration and the files that it names hold: settings or one sentence, soon, and in little memory."""

import json
import os
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from laps_sd.errors import InputError
from laps_sd.scheduler import CostModel, PosteriorSettings, Settings, make_policy
from laps_sd.serving.config import ServingConfig, as_yaml, load_config
from laps_sd.serving.launch import Launch

search = settings(max_examples=int(os.environ.get("LAPS_SD_FUZZ", "60")))

SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=9)
VALUES = st.recursive(
    SCALARS | st.sampled_from(["laps-sd", "las", "predicted", "text", "1e400", ".nan", "2026-12-02", "0x7f", "~"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9) | st.integers(), inner, max_size=3),
    max_leaves=8,
)
#: The file with every key set, that of each constant of the policy too.
NAMES = "|".join(["name", *Settings().names(), *(field.name for field in fields(PosteriorSettings))])
EVERY_KEY = re.sub(rf"^(\s*)# ((?:{NAMES}):.*)$", r"\1\2", as_yaml(ServingConfig()), flags=re.MULTILINE)
COST = {"step_s": 0.02, "step_s_per_request": 0.001, "prefill_s": 0.01, "prefill_s_per_token": 1e-5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("any")


def settled(read: Callable[[], ServingConfig]) -> None:
    """A configuration is read, and serves; or it is refused in one sentence."""
    try:
        config = read()
    except InputError as error:
        sentence = str(error)
    else:
        serves(config)
        return
    assert "--laps-sd-config" in sentence
    assert "\n" not in sentence
    assert len(sentence) < 2000


def serves(config: ServingConfig) -> None:
    make_policy(config.policy_name, config.settings(), slots=2)
    again = ServingConfig.model_validate(json.loads(json.dumps(config.model_dump(mode="json"))))
    assert again == config, "what the launcher hands to the other processes"
    Launch(None, config)


@search
@given(content=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@example(b"a: &a [x, x, x, x, x, x, x, x, x]\n")
@example(b"policy: {name: !!python/object/apply:os.system [true]}")
@example(b"[" * 5000)
@example(b"unpredicted: !!bool x")
@example(b"unpredicted: !!timestamp x")
@example(b"unpredicted: !!int ''")
@example(b"policy: &a {name: *a}")
@example(b"record: {max_mb: " + b"9" * 5000 + b"}")
def test_any_bytes(folder: Path, content: bytes) -> None:
    (folder / "config.yaml").write_bytes(content)
    settled(lambda: load_config(folder / "config.yaml"))


def test_the_file_that_is_changed_is_good_itself(folder: Path) -> None:
    (folder / "config.yaml").write_text(EVERY_KEY)
    assert set(load_config(folder / "config.yaml").policy) >= {"name", "margin", "posterior"}


@search
@given(data=st.data())
def test_any_change_of_a_line(folder: Path, data: st.DataObject) -> None:
    lines = EVERY_KEY.splitlines()
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.sampled_from([i for i, line in enumerate(lines) if ": " in line and "#" not in line]))
        key = lines[at].partition(": ")[0]
        said = yaml.safe_dump(data.draw(VALUES), default_flow_style=True).removesuffix("...\n").strip()
        lines[at] = data.draw(st.sampled_from([f"{key}: {said}", f"{key}x: {said}", key, f" {lines[at]}", said]))
    (folder / "config.yaml").write_text("\n".join(lines))
    settled(lambda: load_config(folder / "config.yaml"))


def test_a_file_that_grows_without_bound_when_read_is_refused_at_once(folder: Path) -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 40)]
    merged = ["a0: &a0 {x: 1}", *(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 40))]
    (folder / "config.yaml").write_text("\n".join(merged))
    settled(lambda: load_config(folder / "config.yaml"))
    for key in (
        "policy: {name: *a39}",
        "policy: *a39",
        "policy: {factor: *a39}",
        "policy: {posterior: {kind: *a39}}",
        "record: {path: *a39}",
    ):
        (folder / "config.yaml").write_text("\n".join([*rows, key]))
        settled(lambda: load_config(folder / "config.yaml"))


@search
@given(
    change=st.dictionaries(st.sampled_from([*COST, "plain_step_s", "free_requests", "x"]), VALUES, max_size=3),
    wrapped=st.booleans(),
    cut=st.integers(0, 40),
)
def test_any_cost_model(folder: Path, change: dict[str, Any], wrapped: bool, cut: int) -> None:
    content: Any = {**COST, **change}
    text = json.dumps({"model": content} if wrapped else content)
    (folder / "cost.json").write_text(text if cut > 3 else text[cut:])
    (folder / "config.yaml").write_text(yaml.safe_dump({"cost_model": str(folder / "cost.json")}))
    settled(lambda: load_config(folder / "config.yaml"))
    try:
        cost = load_config(folder / "config.yaml").cost()
    except InputError:
        return
    assert isinstance(cost, CostModel)
    make_policy("laps-sd", None, cost, 4)
    assert cost.tau(3) >= 0
    assert CostModel.from_dict(json.loads(json.dumps(cost.to_dict()))) == cost
