"""Without the flag the installed plugin costs nothing; with it every process knows."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from laps_sd.serving.cpu.launch import environment
from laps_sd.serving.hooks.targets import ROUND_TARGETS, SCHEDULER_TARGETS
from laps_sd.serving.process.exposition import samples_of


def run(code: str, **env: str) -> Any:
    """Run code in a process of its own, in the environment of a CPU server; what it printed last, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=280, env={**environment(), **env}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


WITHOUT_THE_FLAG = """
import json, sys
from sglang.srt.plugins import load_plugins
from sglang.srt.plugins.hook_registry import HookRegistry
load_plugins()
from sglang.srt.server_args import ServerArgs
import argparse
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
args = ServerArgs.from_cli_args(parser.parse_args(["--model-path", "dummy"]))
ours = {target: [str(kind) for kind, hook, source in hooks if source and source.plugin_name == "laps_sd"]
        for target, hooks in HookRegistry._hooks.items()}
print(json.dumps({
    "hooks": sorted(target for target, kinds in ours.items() if kinds),
    "modules": sorted(name for name in sys.modules if name.startswith("laps_sd") and ".cpu" not in name),
    "heavy": sorted(n for n in ("lightgbm", "mlflow", "prometheus_client") if n in sys.modules),
    "policy": args.schedule_policy,
}))
"""


def test_without_the_flag_four_hooks_are_registered_and_nothing_is_imported() -> None:
    seen = run(WITHOUT_THE_FLAG)
    server_args = "sglang.srt.server_args.ServerArgs."
    of_arguments = [server_args + name for name in ("add_cli_args", "from_cli_args", "resolve_once")]
    assert seen["hooks"] == ["sglang.srt.runtime_context.publish", *of_arguments]
    assert seen["modules"] == [
        "laps_sd", "laps_sd.serving", "laps_sd.serving.flags", "laps_sd.serving.plugin",
        "laps_sd.serving.termination", "laps_sd.serving.termination.refuse",
    ]  # fmt: skip
    assert seen["heavy"] == []
    assert seen["policy"] == "fcfs"


METRICS_IN_TWO_PROCESSES = """
import json, os, sys, subprocess
import laps_sd.serving.monitoring.metrics, laps_sd.serving.requests.tokenizer_side
import laps_sd.serving.requests.scheduler_side
too_early = "prometheus_client" in sys.modules
folder = sys.argv[1] if len(sys.argv) > 1 else os.environ["FOLDER"]
os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder  # as SGLang does, after plugins were loaded
from laps_sd.serving.monitoring.metrics import SchedulerMetrics, TokenizerMetrics
if os.fork() == 0:
    from laps_sd.serving.monitoring.served import Served
    scheduler = SchedulerMetrics("las", Served("folder", "", "abc", "0.5.23", "las"))
    scheduler.ranked(3e-5)
    scheduler.preempted("kv")
    from laps_sd.scheduler import CostModel, Prediction, SurvivalCurve, make_policy, new_request
    policy = make_policy("fcfs", slots=2)
    def at(level, steps=0):
        length = SurvivalCurve.lognormal(100, 0.3)
        state = new_request(1, 10, prediction=Prediction(length, 2.0, 8.0), max_new_tokens=50)
        state.queue, state.steps, state.running = level, steps, steps > 0
        return state
    scheduler.show({"waiting": [at(5), at(5)], "running": [at(3, 1)]}, policy)
    scheduler.show({"waiting": [at(4)], "running": []}, policy, CostModel(step_s=0.1))
    os._exit(0)
os.wait()
tokenizer = TokenizerMetrics()
tokenizer.unpredicted("slow")
tokenizer.length_error(100, 50)
from prometheus_client import CollectorRegistry, generate_latest, multiprocess
registry = CollectorRegistry()
multiprocess.MultiProcessCollector(registry)
print(json.dumps({"too_early": too_early, "text": generate_latest(registry).decode()}))
"""


def test_metrics_of_all_processes_meet_in_one_page(tmp_path: Any) -> None:
    seen = run(METRICS_IN_TWO_PROCESSES, FOLDER=str(tmp_path))
    assert not seen["too_early"], "prometheus_client was imported before SGLang could set its folder"
    for line in (
        'laps_sd_active{policy="las"} 1.0',
        'laps_sd_info{bundle="folder",policy="las",run="abc",sglang="0.5.23",version=""} 1.0',
        'laps_sd_preemptions_total{reason="kv"} 1.0',
        'laps_sd_unpredicted_requests_total{reason="slow"} 1.0',
        "laps_sd_rank_seconds_count 1.0",
        'laps_sd_requests{level="4",phase="waiting"} 1.0',
        'laps_sd_backlog_steps{phase="running"} 0.0',
        "laps_sd_perceptible_share NaN",
        "laps_sd_length_log_error_count 1.0",
    ):
        assert line in seen["text"]
    assert 'level="5"' not in seen["text"], "a level that emptied is gone"
    assert 'level="3"' not in seen["text"]
    found = {name: value for name, labels, value in samples_of(seen["text"]) if labels.get("phase") == "waiting"}
    assert found["laps_sd_backlog_tokens"] == pytest.approx(50, rel=0.02), "its limit cuts what was predicted"
    assert found["laps_sd_backlog_steps"] == pytest.approx(found["laps_sd_backlog_tokens"] / 2, rel=0.1)
    assert found["laps_sd_backlog_seconds"] == pytest.approx(found["laps_sd_backlog_steps"] * 0.1)


def test_a_child_that_schedules_counts_rounds_where_a_file_is_named_with_and_without_the_flag(
    sglang: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry

    from laps_sd.serving import plugin
    from laps_sd.serving.hooks.rounds import HOOKS

    seen: list[str] = []
    monkeypatch.setattr(HookRegistry, "register", lambda target, hook, kind: seen.append(target))
    monkeypatch.setattr(plugin.multiprocessing, "parent_process", lambda: "some parent")
    monkeypatch.setenv("LAPS_SD_ROUNDS", str(tmp_path / "rounds.jsonl"))
    plugin.activate()
    HOOKS.close()
    assert len(seen) == 4 + len(ROUND_TARGETS)
    assert (tmp_path / "rounds.jsonl").exists()


def test_a_child_registers_more_only_if_it_schedules_and_the_flag_was_given(
    sglang: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry

    from laps_sd.serving import plugin

    def registered() -> int:
        seen: list[str] = []
        monkeypatch.setattr(HookRegistry, "register", lambda target, hook, kind: seen.append(target))
        plugin.activate()
        return len(seen)

    monkeypatch.setattr(plugin.multiprocessing, "parent_process", lambda: "some parent")
    assert registered() == 4, "the flag was not given"
    monkeypatch.setenv("LAPS_SD_ACTIVE", "{}")
    assert registered() == 4 + len(SCHEDULER_TARGETS)
    monkeypatch.delitem(sys.modules, "sglang.srt.managers.scheduler")
    assert registered() == 4, "a detokenizer does not schedule"
    monkeypatch.setattr(plugin.multiprocessing, "parent_process", lambda: None)
    assert registered() == 4, "the launcher decides when it has parsed its arguments"


OFFLINE = """
import json, os, sys
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.server_args import ServerArgs
from sglang.srt.runtime_context import publish
def start(policy):
    args = ServerArgs(model_path="dummy", device="cpu", schedule_policy=policy)
    try:
        args.resolve_once()
        publish(args, role="tokenizer")
    except Exception as error:
        return str(error)
    hooks = sys.modules.get("laps_sd.serving.hooks.tokenizer")
    return [args.schedule_policy, "LAPS_SD_ACTIVE" in os.environ, bool(hooks and hooks.HOOKS.side)]
print(json.dumps([start(policy) for policy in sys.argv[1:] or json.loads(os.environ["POLICIES"])]))
"""


def test_an_engine_without_command_line_takes_its_options_from_the_environment(tmp_path: Path) -> None:
    config = tmp_path / "laps-sd.yaml"
    config.write_text("unpredicted: true")
    seen = run(OFFLINE, POLICIES='["laps-sd", "fcfs", "laps-sd"]', LAPS_SD_CONFIG=str(config))
    assert seen == [["laps-sd", True, True], ["fcfs", False, False], ["laps-sd", True, True]]


def test_an_engine_that_cannot_have_laps_sd_gets_one_sentence() -> None:
    (sentence,) = run(OFFLINE, POLICIES='["laps-sd"]')
    assert "needs --laps-sd-bundle" in sentence
    assert "LAPS_SD_BUNDLE" in sentence


def test_the_kill_switch_holds_for_an_engine_too() -> None:
    assert run(OFFLINE, POLICIES='["laps-sd"]', LAPS_SD_DISABLE="1") == [["fcfs", False, False]]


def test_what_a_laps_sd_server_left_in_the_environment_activates_nothing() -> None:
    """As in a child process of one, that starts an engine of its own."""
    assert run(OFFLINE, POLICIES='["fcfs"]', LAPS_SD_ACTIVE="{}") == [["fcfs", False, False]]
