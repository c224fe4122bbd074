"""Step and prefill times of this server, learned while it serves: what a preemption's recomputation costs.

A clock differs from rank to rank, so what is learned here enters an order only where there is a single rank; several
ranks are told the cost model of their machine, or assume one.
"""

from collections import deque
from statistics import median

from laps_sd.scheduler import CostModel
from laps_sd.scheduler.cost_fit import fit_line

#: Until more is known: a prefill takes as long as a verify step, as where launching or reading the weights is most of
#: both. Taken for free, preemptions in the first seconds of a burst cost more than they gain.
ASSUMED = CostModel(step_s=1.0, prefill_s=1.0)
_WINDOW = 256
_ENOUGH_STEPS = 32
_ENOUGH_PREFILLS = 8
_EVERY = 64  # decode steps between two looks
_TELLING = 64  # tokens: shorter prefills alone say nothing about what a token costs


class StepClock:
    """The median step and the line of prefill over the last ones: a pause or a compilation moves them little.

    Time between two results is the time of the later one, overlap scheduling or not; the first after an idle gap
    says nothing.

    Parameters
    ----------
    known : CostModel, optional
        What the operator measured, or what is assumed: nothing is learned then.
    """

    def __init__(self, known: CostModel | None = None) -> None:
        self._known = known
        self._steps: deque[float] = deque(maxlen=_WINDOW)
        self._prefills: deque[tuple[int, float]] = deque(maxlen=_WINDOW)
        self._last: float | None = None
        self._since_look = 0
        self._most_running = 0
        self._told = 0
        self._cost = known or ASSUMED

    def on_decode(self, now: float, running: int, *, after_idle: bool) -> tuple[CostModel, int] | None:
        """Take note that a decode step's result of ``running`` requests came at ``now`` (seconds).

        Returns
        -------
        cost : CostModel
        running : int
            The most requests that ran together since the last look. None instead of both where there is nothing new:
            it is not time for a new look, and no more requests run than at the last one.
        """
        if self._last is not None and not after_idle:
            self._steps.append(now - self._last)
        self._last = now
        self._most_running = max(self._most_running, running)
        self._since_look += 1
        if self._since_look < _EVERY and running <= self._told:
            return None
        if self._since_look >= _EVERY:
            self._cost = self.cost()
        self._told, self._most_running, self._since_look = self._most_running, 0, 0
        return self._cost, self._told

    def on_prefill(self, now: float, tokens: int, *, after_idle: bool) -> None:
        """Take note that the result of a prefill of ``tokens`` tokens came at ``now`` (seconds)."""
        if self._last is not None and not after_idle and tokens > 0:
            self._prefills.append((tokens, now - self._last))
        self._last = now

    def cost(self) -> CostModel:
        """Return what steps and prefills cost, seconds; what is assumed while too few were seen."""
        if self._known is not None:
            return self._known
        return self._seen() or ASSUMED

    def measured(self) -> CostModel | None:
        """Return what the operator measured, else what was seen; None while too few were seen. Never for an order."""
        return self._seen() if self._known is None or self._known is ASSUMED else self._known

    def _seen(self) -> CostModel | None:
        if len(self._steps) < _ENOUGH_STEPS or len(self._prefills) < _ENOUGH_PREFILLS:
            return None
        tokens, seconds = zip(*self._prefills, strict=True)
        fixed, per_token = fit_line(tokens, seconds) if max(tokens) >= _TELLING else (median(seconds), 0.0)
        return CostModel(step_s=median(self._steps), prefill_s=fixed, prefill_s_per_token=per_token)
