"""Ctrl-C and other requests to stop: when they may interrupt, and when they must wait a moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_TERMINATE = (signal.SIGTERM, signal.SIGHUP)
Handler = Callable[[int, FrameType | None], Any]


@contextmanager
def orderly() -> Iterator[None]:
    """Let SIGTERM and SIGHUP interrupt as Ctrl-C does, so that what was begun is ended and not left as it is.

    A signal that is ignored (``nohup``) or handled by somebody else stays so.
    """
    ours = [s for s in _TERMINATE if _in_main_thread() and signal.getsignal(s) == signal.SIG_DFL]
    for number in ours:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put an interrupt off until the block has ended. Whoever interrupts once more means it, and is not put off."""
    before: dict[int, Handler] = {}
    waiting: list[int] = []

    def later(number: int, frame: FrameType | None) -> None:
        if waiting:
            before[number](number, frame)
        waiting.append(number)

    for number in (signal.SIGINT, *_TERMINATE):
        handler = signal.getsignal(number)
        if callable(handler) and _in_main_thread():
            before[number] = handler
            signal.signal(number, later)
    try:
        yield
    finally:
        for caught, handler in before.items():
            signal.signal(caught, handler)
        if waiting:
            before[waiting[0]](waiting[0], None)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
