"""Step and prefill times of this server, learned while it serves: what a preemption's recomputation costs.

A clock differs from rank to rank, so what is learned here enters an order only where there is a single rank.
"""

from collections import deque
from statistics import median

from laps_sd.scheduler import CostModel

_WINDOW = 256
_ENOUGH_STEPS = 32
_ENOUGH_PREFILLS = 8
_EVERY = 64  # decode steps between two looks
_MIN_TOKENS = 16  # a shorter prefill says more about launching than about tokens


class StepClock:
    """Medians over the last steps: a pause, a neighbour or a compilation moves them little.

    Time between two results is the time of the later one, overlap scheduling or not; the first after an idle gap
    says nothing.
    """

    def __init__(self) -> None:
        self._steps: deque[float] = deque(maxlen=_WINDOW)
        self._prefills: deque[float] = deque(maxlen=_WINDOW)
        self._last: float | None = None
        self._since_look = 0

    def on_decode(self, now: float, *, after_idle: bool) -> CostModel | None:
        """A decode step's result came at ``now`` (seconds); return a cost model when it is time for a new one."""
        if self._last is not None and not after_idle:
            self._steps.append(now - self._last)
        self._last = now
        self._since_look += 1
        if self._since_look < _EVERY:
            return None
        self._since_look = 0
        return self.cost()

    def on_prefill(self, now: float, tokens: int, *, after_idle: bool) -> None:
        """The result of a prefill of ``tokens`` tokens came at ``now`` (seconds)."""
        if self._last is not None and not after_idle and tokens >= _MIN_TOKENS:
            self._prefills.append((now - self._last) / tokens)
        self._last = now

    def cost(self) -> CostModel | None:
        """What steps and prefills cost, seconds; None while too few were seen."""
        if len(self._steps) < _ENOUGH_STEPS or len(self._prefills) < _ENOUGH_PREFILLS:
            return None
        return CostModel(step_s=median(self._steps), prefill_s_per_token=median(self._prefills))
