"""The plugin of a soak: loaded by the servers of a soak alone, it lets one function raise and counts objects."""

import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from soak_inside import ERRORS, PER_REQUEST, POINTS, Fault, census, install

_LIVE = """
import time
from importlib.metadata import entry_points
(plugin,) = [e for e in entry_points(group="sglang.srt.plugins") if e.name == "laps_sd_soak"]
plugin.load()()
from laps_sd.scheduler import make_policy
from laps_sd.serving.requests.exchange import Attachment
from laps_sd.serving.requests.scheduler_side import SchedulerRequest, SchedulerSide
side, held = SchedulerSide(make_policy("laps-sd")), [SchedulerRequest(i, Attachment()) for i in range(7)]
for attempt in range(3):
    try:
        side.rank([])
        print("ranked")
    except ZeroDivisionError as error:
        print(error)
"""


@pytest.mark.parametrize("point", POINTS)
def test_a_point_is_a_function_of_ours(point: str) -> None:
    assert callable(pkgutil.resolve_name(point))


def test_errors_are_built_in_exceptions_and_counted_names_are_classes_of_ours() -> None:
    assert all(issubclass(pkgutil.resolve_name(f"builtins:{name}"), Exception) for name in ERRORS)
    from laps_sd.scheduler import RequestState
    from laps_sd.serving.requests.scheduler_side import SchedulerRequest
    from laps_sd.serving.requests.tokenizer_side import TokenizerRequest

    assert {RequestState.__name__, SchedulerRequest.__name__, TokenizerRequest.__name__} == set(PER_REQUEST)


def test_a_process_with_the_variables_raises_and_answers_the_census(tmp_path: Path) -> None:
    point = "laps_sd.serving.requests.scheduler_side:SchedulerSide.rank"
    env = {**os.environ, **install(tmp_path, Fault(point, 2, "ZeroDivisionError"))}
    command = [sys.executable, "-u", "-c", _LIVE + "time.sleep(600)"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            said = [process.stdout.readline().strip() for _ in range(3)]
            assert said == ["ranked", "a fault of the soak", "a fault of the soak"]
            assert list(tmp_path.glob("struck-*"))
            (held,) = census(tmp_path, 1)
            assert held.objects == {"SchedulerRequest": 7}
            assert "python" in held.command
            assert min(held.weights) > 1
            with pytest.raises(TimeoutError, match="1 of 2 processes"):
                census(tmp_path, 2, timeout_s=2.0)
        finally:
            process.kill()


def test_no_usual_process_sees_the_plugin() -> None:
    from importlib.metadata import entry_points

    assert "laps_sd_soak" not in {entry.name for entry in entry_points(group="sglang.srt.plugins")}
