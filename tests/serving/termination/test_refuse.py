"""A refusal ends the whole server: SGLang cannot swallow it, and no other process goes on."""

import subprocess
import sys
from pathlib import Path

import pytest


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a fresh interpreter."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)


SWALLOWED = """
import sys
from laps_sd.serving.termination.refuse import refuse
try:
    refuse("no bundle")
except Exception:  # as SGLang's plugin loader does
    print("went on")
"""


def test_a_refusal_cannot_be_swallowed() -> None:
    ended = python(SWALLOWED)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", "laps-sd: no bundle\n")


def test_a_refusal_in_a_thread_ends_the_process() -> None:
    code = "import threading, time; from laps_sd.serving.termination.refuse import refuse\n"
    code += "threading.Thread(target=refuse, args=('no bundle',)).start(); time.sleep(30)"
    ended = python(code)
    assert (ended.returncode, ended.stderr) == (1, "laps-sd: no bundle\n")


CHILDREN = """
import multiprocessing, os, signal, sys, time
from laps_sd.serving.termination.refuse import refuse
def child(refuses):
    if refuses:
        refuse("no bundle")
    time.sleep(60)
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=child, args=(r,)) for r in (False, sys.argv[1] == "child")]
    for other in others:
        other.start()
    def sigquit(*_):  # SGLang's main process has such a handler before it starts its children
        for other in others:
            other.kill()
        os._exit(3)
    signal.signal(signal.SIGQUIT, sigquit)
    if sys.argv[1] == "main":
        refuse("no bundle")
    time.sleep(60)
"""


@pytest.mark.parametrize(("who", "status"), [("main", 1), ("child", 3)])
def test_a_refusal_ends_the_other_processes_too(tmp_path: Path, who: str, status: int) -> None:
    script = tmp_path / "server.py"
    script.write_text(CHILDREN)
    # The children inherit standard error: this returns only when all of them have ended.
    ended = subprocess.run(
        [sys.executable, str(script), who], stderr=subprocess.PIPE, text=True, timeout=50, check=False
    )
    assert ended.returncode == status
    assert "laps-sd: no bundle" in ended.stderr
