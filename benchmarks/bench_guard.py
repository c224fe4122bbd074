"""What the guard around a hook costs per call.

    python benchmarks/bench_guard.py

Microseconds, the least of fifteen runs of a guarded call beside the same call without it.
"""

import time
from collections.abc import Callable

from laps_sd.serving.hooks.guard import guard_around

ROUNDS, RUNS = 20_000, 15


def double(x: int) -> int:
    """Stand in for a function of SGLang."""
    return 2 * x


def hook(function: Callable[[int], int], x: int) -> int:
    """Stand in for a hook of ours."""
    return function(x)


def told(name: str, error: Exception) -> None:
    """Nothing fails here."""


def microseconds(call: Callable[..., object]) -> float:
    """Return the least microseconds a call over the runs."""
    best = float("inf")
    for _ in range(RUNS):
        started = time.perf_counter()
        for _ in range(ROUNDS):
            call(double, 1)
        best = min(best, (time.perf_counter() - started) / ROUNDS)
    return 1e6 * best


if __name__ == "__main__":
    bare, guarded = microseconds(hook), microseconds(guard_around("f", hook, told))
    print(f"bare {bare:.3f} µs, guarded {guarded:.3f} µs, the guard {guarded - bare:.3f} µs")
