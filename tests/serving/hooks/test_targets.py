"""The table of everything that we touch in SGLang, against the installed SGLang: an upgrade fails here first."""

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from laps_sd.errors import InputError
from laps_sd.serving.flags import SUPPORTED_SGLANG
from laps_sd.serving.hooks.check import check_version, difference, installed_sglang
from laps_sd.serving.hooks.targets import (
    ALL_TARGETS,
    ARGUMENT_TARGETS,
    SCHEDULER_TARGETS,
    TOKENIZER_TARGETS,
    Target,
    as_markdown,
)
from laps_sd.serving.preflight import check_sglang


def test_the_installed_sglang_is_one_that_is_supported() -> None:
    assert installed_sglang() in SUPPORTED_SGLANG


def test_what_is_installed_and_what_is_said_name_one_version() -> None:
    root = Path(__file__).resolve().parents[3]
    for name in ("pyproject.toml", "requirements/cpu-nodeps.txt", "requirements/lock.txt"):
        named = re.findall(
            r"^(?:sglang = \[\")?sglang==([\d.]+)", (root / name).read_text(encoding="utf-8"), re.MULTILINE
        )
        assert named == [SUPPORTED_SGLANG[-1]], name
    for name in ("README.md", "docs/cpu.md", "docs/results-serving.md", "requirements/cpu.txt"):
        assert f"SGLang {SUPPORTED_SGLANG[-1]}" in (root / name).read_text(encoding="utf-8"), name


@pytest.mark.parametrize("target", ALL_TARGETS, ids=lambda t: f"{t.kind}:{t.path.removeprefix('sglang.srt.')}")
def test_the_installed_sglang_has_what_the_table_says(sglang: ModuleType, target: Target) -> None:
    assert difference(target) is None


def test_every_hook_stands_in_the_table_and_every_entry_has_its_hook(sglang: ModuleType) -> None:
    from laps_sd.serving.hooks.scheduler import SchedulerHooks
    from laps_sd.serving.hooks.tokenizer import TokenizerHooks

    assert {t.name for t in SCHEDULER_TARGETS} == set(SchedulerHooks().table)
    assert {t.name for t in TOKENIZER_TARGETS} == set(TokenizerHooks().table)
    assert {t.name for t in ARGUMENT_TARGETS} == {"add_cli_args", "from_cli_args", "resolve_once", "publish"}


def test_the_page_of_the_docs_is_the_table() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "serving-targets.md"
    assert page.read_text(encoding="utf-8") == as_markdown(), "python -m laps_sd.serving.hooks.targets writes it"


def test_no_two_entries_are_the_same_and_each_says_why() -> None:
    assert len({(t.path, t.kind) for t in ALL_TARGETS}) == len(ALL_TARGETS)
    assert all(t.why and (t.names or t.kind in ("call", "class")) for t in ALL_TARGETS)


def test_a_changed_signature_refuses_to_start(sglang: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang.srt.managers.schedule_policy import SchedulePolicy

    def calc_priority(self: Any, waiting_queue: Any, batch: Any) -> None: ...

    monkeypatch.setattr(SchedulePolicy, "calc_priority", calc_priority)
    with pytest.raises(InputError) as caught:
        check_sglang(allow_untested=False)
    sentence = str(caught.value)
    assert "SchedulePolicy.calc_priority" in sentence
    assert "expected self, waiting_queue, running_batch, processed_tokens" in sentence
    assert "found (self, waiting_queue, batch)" in sentence
    assert SUPPORTED_SGLANG[-1] in sentence
    assert "laps-sd doctor" in sentence


def test_a_removed_function_or_attribute_is_named(sglang: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang.srt.managers.scheduler import Scheduler

    monkeypatch.delattr(Scheduler, "get_prefill_adder_class")
    with pytest.raises(InputError, match=r"get_prefill_adder_class: .* found nothing"):
        check_sglang(allow_untested=False)
    missing = Target("sglang.srt.managers.schedule_batch.Req", "attributes", ("rid", "no_such_thing"), "test")
    assert difference(missing) == "no attribute no_such_thing"


def test_new_parameters_with_defaults_do_not_disturb_a_caller(sglang: ModuleType) -> None:
    path = "sglang.srt.managers.schedule_batch.ScheduleBatch.release_req"
    assert difference(Target(path, "call", ("self", "idx", "remaing_req_count"), "test")) is None
    assert difference(Target(path, "call", ("self", "idx"), "test")) is not None
    assert difference(Target(path, "call", ("self", "idx", "remaining"), "test")) is not None


@pytest.mark.parametrize("found", ["0.5.22", "0.6.0", None])
def test_another_version_is_refused_with_what_to_do(found: str | None) -> None:
    sentence = check_version(found, allow_untested=False)
    assert sentence is not None
    assert SUPPORTED_SGLANG[-1] in sentence
    assert "install" in sentence
    assert "\n" not in sentence


def test_an_operator_may_vouch_for_another_version() -> None:
    assert check_version("0.6.0", allow_untested=True) is None
    assert check_version(None, allow_untested=True) is not None


def test_another_version_refuses_to_start(sglang: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laps_sd.serving.preflight.installed_sglang", lambda: "0.6.0")
    with pytest.raises(InputError, match=r"SGLang 0\.6\.0 is installed but laps-sd is tested with"):
        check_sglang(allow_untested=False)
    check_sglang(allow_untested=True)
