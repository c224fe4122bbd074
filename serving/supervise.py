"""Runs one command and guarantees that nothing of it survives. Started by :mod:`laps_sd.serving.process`.

``python supervise.py PARENT_PID COMMAND…`` ends the command and all its descendants when it is told to (SIGTERM,
SIGINT, SIGHUP), when the command itself ends, or when the process PARENT_PID is gone, killed or not. Exits with the
command's status (128 + n where signal n ended it).

A file of its own that imports nothing of ours: it lives as long as a server and must stay small.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time

import psutil

_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>
_WATCHED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
#: Seconds: between looks at the parent, for a polite end, for descendants to follow.
LOOK_EVERY, POLITE, FOLLOW = 0.5, 5.0, 2.0


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _in_child() -> None:
    # Were this supervisor killed with SIGKILL, the command must go too.
    _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)


def _reap(command: int) -> int | None:
    """Collect every ended descendant; the exit status of ``command`` if it is among them."""
    status = None
    while True:
        try:
            pid, wait_status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == command:
            code = os.waitstatus_to_exitcode(wait_status)
            status = code if code >= 0 else 128 - code


def _wait(command: int, parent: int) -> int | None:
    """Wait for the command's end (its status), a request to stop or the parent's end (None)."""
    while True:
        if (status := _reap(command)) is not None:
            return status
        if os.getppid() != parent:
            return None
        caught = signal.sigtimedwait(_WATCHED, LOOK_EVERY)
        if caught is not None and caught.si_signo != signal.SIGCHLD:
            return None


def _end_politely(command: int) -> int | None:
    """Interrupt the command (a web server closes its socket on that); its status if it ends in time."""
    os.kill(command, signal.SIGINT)
    deadline = time.monotonic() + POLITE
    while time.monotonic() < deadline:
        if (status := _reap(command)) is not None:
            return status
        time.sleep(0.05)
    return None


def _end_descendants(command: int) -> int | None:
    """Kill what is left below us, until nothing is; being a subreaper, this sees orphans in other sessions too."""
    status = None
    give_up_politeness = time.monotonic() + FOLLOW
    while left := psutil.Process().children(recursive=True):
        if time.monotonic() > give_up_politeness or any(child.pid == command for child in left):
            for child in left:
                try:
                    child.kill()
                except psutil.NoSuchProcess:
                    continue
        time.sleep(0.05)
        status = _reap(command) if status is None else (_reap(command), status)[1]
    return status


def main(argv: list[str]) -> int:
    """Supervise ``argv[1:]`` for the process ``argv[0]``; return the exit status."""
    parent, command = int(argv[0]), argv[1:]
    _prctl(_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    # Safe here, unlike in the parent: this process has one thread.
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_in_child)  # noqa: S603
    status = _wait(child.pid, parent)
    if status is None:
        status = _end_politely(child.pid)
    late = _end_descendants(child.pid)
    child.returncode = status = status if status is not None else (late if late is not None else 137)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
