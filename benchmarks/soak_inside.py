"""What a soak does inside the server's processes: lets one of our functions raise, counts our objects, and weighs them.

SGLang loads this as a plugin of its own: `install` lays the entry point into a folder that the server has on its path,
so no usual server ever sees it.
"""

import gc
import importlib
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

#: Tells the processes of a server what to do; holds a `Plan` as JSON.
PLAN_ENV = "LAPS_SD_SOAK"
#: The processes of a server that load plugins: main, scheduler, detokenizer.
PROCESSES = 3
#: Objects that exist once for each request, in one process or the other.
PER_REQUEST = ("SchedulerRequest", "RequestState", "TokenizerRequest")
_SIDE = "laps_sd.serving.requests.scheduler_side:SchedulerSide"
_POLICY = "laps_sd.scheduler.policies.laps_sd:LapsSd"
_TOKENIZER = "laps_sd.serving.requests.tokenizer_side:TokenizerSide"
#: Functions of ours that may raise: those that hooks call, in both processes.
POINTS = (
    *(f"{_SIDE}.{name}" for name in (
        "on_received", "rank", "on_admit", "on_preempt", "on_step", "on_finish", "on_drop", "victim", "may_lose_slot",
        "may_pass", "reserve_tokens", "plans_by_prediction", "state_of",
    )),
    *(f"{_POLICY}.{name}" for name in (
        "start_round", "rank", "on_arrival", "victim", "on_step", "on_finish", "on_abort",
    )),
    "laps_sd.serving.requests.step_clock:StepClock.on_decode",
    f"{_TOKENIZER}.on_tokenized", f"{_TOKENIZER}.on_finished",
)  # fmt: skip
ERRORS = ("ValueError", "MemoryError", "KeyError", "RecursionError", "ZeroDivisionError")


@dataclass(frozen=True, slots=True)
class Fault:
    """One of our functions raises, from a certain call on.

    Attributes
    ----------
    point : str
        ``module:Class.function``.
    call : int
        The first call that raises.
    error : str
        Name of the built-in exception.
    """

    point: str
    call: int
    error: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What one server's processes do.

    Attributes
    ----------
    folder : str
        Where they leave what they counted.
    fault : Fault or None
    """

    folder: str
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Census:
    """What one process holds.

    Attributes
    ----------
    command : str
        What it calls itself.
    objects : dict
        How many of the objects in `PER_REQUEST`.
    weights : list of float
        Its resident memory, megabytes, one for each second of its life.
    """

    command: str
    objects: dict[str, int]
    weights: list[float]


def install(folder: Path, fault: Fault | None = None) -> Mapping[str, str]:
    """Lay the plugin into ``folder``, and return the variables of a server that loads it."""
    distribution = folder / "laps_sd_soak-1.dist-info"
    distribution.mkdir(parents=True, exist_ok=True)
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: laps-sd-soak\nVersion: 1\n")
    (distribution / "entry_points.txt").write_text("[sglang.srt.plugins]\nlaps_sd_soak = soak_inside:activate\n")
    path = [str(folder), str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(path), PLAN_ENV: json.dumps(asdict(Plan(str(folder), fault)))}


def activate() -> None:
    """Do in this process what the plan says."""
    said = json.loads(os.environ[PLAN_ENV])
    fault = None if said["fault"] is None else Fault(**said["fault"])
    if fault is not None:
        _put(fault, Path(said["folder"]))
    counter = threading.Thread(target=_count_when_asked, args=(Path(said["folder"]),), daemon=True)
    counter.start()


def _put(fault: Fault, folder: Path) -> None:
    module, _, name = fault.point.partition(":")
    owner_name, _, function_name = name.partition(".")
    owner = getattr(importlib.import_module(module), owner_name)
    real: Callable[..., Any] = getattr(owner, function_name)
    error: type[Exception] = getattr(importlib.import_module("builtins"), fault.error)
    calls = 0

    def faulty(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls < fault.call:
            return real(*args, **kwargs)
        if calls == fault.call:
            (folder / f"struck-{os.getpid()}").touch()
        raise error("a fault of the soak")

    setattr(owner, function_name, faulty)


def _count_when_asked(folder: Path) -> None:
    """Weigh the process every second, and leave a census in the folder each time that the file ``ask`` is new there."""
    asked, answered, process = folder / "ask", -1, psutil.Process()
    weights: list[float] = []
    while True:
        time.sleep(1.0)
        weights.append(process.memory_info().rss / 1e6)
        now = asked.stat().st_mtime_ns if asked.exists() else -1
        if now != answered:
            gc.collect()
            found = Counter(name for o in gc.get_objects() if (name := type(o).__name__) in PER_REQUEST)
            target = folder / f"census-{os.getpid()}.json"
            counted = Census(" ".join(process.cmdline())[:200], dict(found), weights)
            target.with_suffix(".new").write_text(json.dumps(asdict(counted)))
            target.with_suffix(".new").rename(target)
            answered = now


def census(folder: Path, processes: int = PROCESSES, timeout_s: float = 120.0) -> list[Census]:
    """Ask the processes of a server what they hold.

    Raises
    ------
    TimeoutError
        Not all of them answered.
    """
    for old in folder.glob("census-*.json"):
        old.unlink()
    (folder / "ask").write_text(str(time.time_ns()))
    until = time.monotonic() + timeout_s
    while len(answers := list(folder.glob("census-*.json"))) < processes:
        if time.monotonic() > until:
            raise TimeoutError(f"{len(answers)} of {processes} processes answered the census")
        time.sleep(0.2)
    return [Census(**json.loads(answer.read_text())) for answer in answers]
