"""Runs one command and guarantees that nothing of it survives. Started by :mod:`laps_sd.serving.process.server`.

``python supervise.py PARENT_PID GRACE_S COMMAND…`` ends the command and all its descendants when it is told to
(SIGTERM, SIGINT, SIGHUP), when the command itself ends, or when the process PARENT_PID is gone, killed or not. Exits
with the command's status (128 + n where signal n ended it).

A file of its own that imports nothing of ours: it lives as long as a server and must stay small.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time

import psutil

_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>
_KILLED = 128 + signal.SIGKILL
_WATCHED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
#: Seconds between looks at the parent.
LOOK_EVERY = 0.5


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def end_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends (Linux)."""
    _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def _in_child() -> None:
    end_with_parent()  # were this supervisor killed with SIGKILL, the command must go too
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


def _end_politely(command: int, grace_s: float) -> int | None:
    """Interrupt the command (a web server closes its socket on that); its status if it ends in time."""
    os.kill(command, signal.SIGINT)
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline:
        if (status := _reap(command)) is not None:
            return status
        time.sleep(0.05)
    return None


def _end_descendants(command: int, status: int | None, grace_s: float) -> int:
    """Kill what is left below us until nothing is, and return the command's status (``status`` if it has ended).

    After an end of its own the command's children get ``grace_s`` to follow. Being a subreaper, this sees orphans and
    processes in other sessions too.
    """
    patience = time.monotonic() + (0.0 if status is None else grace_s)
    while left := psutil.Process().children(recursive=True):
        if time.monotonic() >= patience:
            for child in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        time.sleep(0.05)
        ended = _reap(command)
        status = ended if status is None else status
    return _KILLED if status is None else status


def main(argv: list[str]) -> int:
    """Supervise ``argv[2:]`` for the process ``argv[0]``; return the exit status."""
    parent, grace_s, command = int(argv[0]), float(argv[1]), argv[2:]
    _prctl(_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    # preexec_fn is safe here, unlike in the parent: this process has one thread.
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_in_child)  # noqa: S603
    status = _wait(child.pid, parent)
    if status is None:
        status = _end_politely(child.pid, grace_s)
    child.returncode = _end_descendants(child.pid, status, grace_s)  # collected above: Popen must not wait for it again
    return child.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
