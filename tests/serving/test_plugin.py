"""Without the flag the installed plugin costs nothing; with it every process knows."""

import json
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

from laps_sd.serving.cpu.launch import environment
from laps_sd.serving.hooks.targets import SCHEDULER_TARGETS


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


def test_without_the_flag_two_hooks_are_registered_and_nothing_is_imported() -> None:
    seen = run(WITHOUT_THE_FLAG)
    server_args = "sglang.srt.server_args.ServerArgs."
    assert seen["hooks"] == [server_args + "add_cli_args", server_args + "from_cli_args"]
    assert seen["modules"] == [
        "laps_sd", "laps_sd.serving", "laps_sd.serving.flags", "laps_sd.serving.plugin",
        "laps_sd.serving.termination", "laps_sd.serving.termination.refuse",
    ]  # fmt: skip
    assert seen["heavy"] == []
    assert seen["policy"] == "fcfs"


METRICS_IN_TWO_PROCESSES = """
import json, os, sys, subprocess
import laps_sd.serving.metrics, laps_sd.serving.requests.tokenizer_side, laps_sd.serving.requests.scheduler_side
too_early = "prometheus_client" in sys.modules
folder = sys.argv[1] if len(sys.argv) > 1 else os.environ["FOLDER"]
os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder  # as SGLang does, after plugins were loaded
from laps_sd.serving.metrics import SchedulerMetrics, TokenizerMetrics
if os.fork() == 0:
    scheduler = SchedulerMetrics("las")
    scheduler.ranked(3e-5)
    scheduler.preempted("kv")
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
        'laps_sd_preemptions_total{reason="kv"} 1.0',
        'laps_sd_unpredicted_requests_total{reason="slow"} 1.0',
        "laps_sd_rank_seconds_count 1.0",
        "laps_sd_length_log_error_count 1.0",
    ):
        assert line in seen["text"]


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
    assert registered() == 2, "the flag was not given"
    monkeypatch.setenv("LAPS_SD_ACTIVE", "{}")
    assert registered() == 2 + len(SCHEDULER_TARGETS)
    monkeypatch.delitem(sys.modules, "sglang.srt.managers.scheduler")
    assert registered() == 2, "a detokenizer does not schedule"
    monkeypatch.setattr(plugin.multiprocessing, "parent_process", lambda: None)
    assert registered() == 2, "the launcher decides when it has parsed its arguments"
