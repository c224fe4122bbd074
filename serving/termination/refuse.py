"""One way for our plugins to refuse: a sentence on standard error and the whole server ends.

SGLang only logs what a plugin raises and serves on without it; an operator who asked for laps-sd would never know.
"""

import multiprocessing
import os
import signal
import sys
import threading
from typing import NoReturn

#: What a refusal starts with; the process manager looks for it in the log.
PREFIX = "laps-sd: "


def refuse(message: str) -> NoReturn:
    """Print ``laps-sd: message`` to standard error and end the server, all of its processes, with a status not 0.

    May be called in every process of SGLang: the main one, before or after its children were started, or a child
    (scheduler, detokenizer, data-parallel controller). Never returns and cannot be caught by ``except Exception``.

    Parameters
    ----------
    message
        One sentence: what is wrong and what to do.

    Raises
    ------
    SystemExit
        In the main thread of the main process, with status 1. Elsewhere the process ends at once: a ``SystemExit``
        would end one thread only, and a child's would leave the other processes running.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(2, f"{PREFIX}{message}\n".encode())  # not sys.stderr: SGLang and test runners replace that
    if multiprocessing.parent_process() is not None:
        # SGLang's own convention for a failed child: on SIGQUIT its parent kills the whole tree.
        os.kill(os.getppid(), signal.SIGQUIT)
        os._exit(1)
    for child in multiprocessing.active_children():
        child.kill()
    if threading.current_thread() is threading.main_thread():
        raise SystemExit(1)
    os._exit(1)
