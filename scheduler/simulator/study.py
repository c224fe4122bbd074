"""Many replays: policies, seeds and loads, in parallel processes, and their averages."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Literal

import numpy as np

from laps_sd.scheduler.outcomes import PolicySummary, slowdown_by_length, summarise
from laps_sd.scheduler.policies.catalogue import make_policy
from laps_sd.scheduler.settings import Settings
from laps_sd.scheduler.simulator.engine import simulate
from laps_sd.scheduler.simulator.machine import Machine
from laps_sd.scheduler.simulator.predictions import (
    noisy_predictions,
    noisy_refinements,
    reversed_order,
    shuffled,
    with_predictions,
)
from laps_sd.scheduler.simulator.result import Timeline
from laps_sd.scheduler.simulator.workload import ReplayRequest, at_load, gamma_arrivals, rate_for_load, with_arrivals

Corruption = Literal["shuffled", "reversed"]
#: Quantiles at which a replay keeps its latencies: enough to draw the distribution.
CDF_QUANTILES = np.linspace(0, 1, 201)


@dataclass(frozen=True, slots=True)
class Workload:
    """Where the requests of a replay come from; `draw` gives those of one seed.

    Attributes
    ----------
    requests : tuple of ReplayRequest
        The trace, in its order, with the predictions that it has.
    timed : bool
        Whether the trace has arrivals of its own. If so, windows of it are replayed in its pattern; if not, requests
        are drawn (without putting back, while they last) and arrive at random.
    n : int, optional
        Requests per replay; None: all.
    load, rate : float, optional
        Offered work as a share of what the slots can do, or requests per second. Neither: the trace's own arrivals.
    cv : float
        Coefficient of variation of drawn gaps: 1 is Poisson.
    noise : float, optional
        Replace the predictions by clairvoyant ones with this much lognormal noise.
    corrupt : {"shuffled", "reversed"}, optional
        Then hand the predictions to the wrong requests.
    refine : mapping of int to float, optional
        Replace what refines the requests by refinements of this quality: by tokens read, the standard deviation of the
        log length.
    """

    requests: tuple[ReplayRequest, ...]
    timed: bool = False
    n: int | None = None
    load: float | None = None
    rate: float | None = None
    cv: float = 1.0
    noise: float | None = None
    corrupt: Corruption | None = None
    refine: Mapping[int, float] | None = None

    def __post_init__(self) -> None:
        if not self.requests:
            raise ValueError("there is no request to replay")
        if self.load is not None and self.rate is not None:
            raise ValueError("give a load or a rate, not both")
        if not self.timed and self.load is None and self.rate is None:
            raise ValueError("the trace has no arrivals: give a load or a rate")

    def draw(self, machine: Machine, seed: int, load: float | None = None) -> list[ReplayRequest]:
        """Return the requests of one seed; ``load`` replaces that of the workload."""
        load = load if load is not None else self.load
        rng = np.random.default_rng(seed)
        requests = self._window(rng) if self.timed else self._sample(rng)
        if load is None and self.rate is None:
            start = requests[0].arrival_s
            requests = with_arrivals(requests, np.array([r.arrival_s - start for r in requests]))
        elif load is not None and self.timed:
            requests = at_load(requests, load, machine.cost, machine.slots)
        else:
            rate = self.rate if load is None else rate_for_load(requests, load, machine.cost, machine.slots)
            assert rate is not None
            requests = with_arrivals(requests, gamma_arrivals(len(requests), rate, rng, self.cv))
        return self._predicted(requests, rng)

    def _window(self, rng: np.random.Generator) -> list[ReplayRequest]:
        n = min(self.n or len(self.requests), len(self.requests))
        start = int(rng.integers(len(self.requests) - n + 1))
        return list(self.requests[start : start + n])

    def _sample(self, rng: np.random.Generator) -> list[ReplayRequest]:
        n, have = self.n or len(self.requests), len(self.requests)
        rounds = [rng.permutation(have) for _ in range(-(-n // have))]
        return [self.requests[i] for i in np.concatenate(rounds)[:n]]

    def _predicted(self, requests: list[ReplayRequest], rng: np.random.Generator) -> list[ReplayRequest]:
        if self.noise is not None:
            requests = with_predictions(requests, noisy_predictions(requests, self.noise, rng))
        predictions = [r.prediction for r in requests if r.prediction is not None]
        if self.corrupt is not None and len(predictions) == len(requests):
            corrupted = shuffled(predictions, rng) if self.corrupt == "shuffled" else reversed_order(predictions)
            requests = with_predictions(requests, corrupted)
        if self.refine is None:
            return requests
        refinements = noisy_refinements(requests, self.refine, rng)
        return [replace(r, refinements=own) for r, own in zip(requests, refinements, strict=True)]


@dataclass(frozen=True, slots=True)
class Trial:
    """One replay to be done: a policy by name, a seed, and a load (None: the workload's own)."""

    policy: str
    seed: int
    load: float | None = None


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What is kept of one replay.

    Attributes
    ----------
    latency_quantiles : ndarray
        Seconds at `CDF_QUANTILES`.
    slowdown : list of (int, int, float)
        As from `slowdown_by_length`, in eight parts.
    """

    trial: Trial
    summary: PolicySummary
    latency_quantiles: np.ndarray
    slowdown: list[tuple[int, int, float]]
    timeline: Timeline


@dataclass(frozen=True, slots=True)
class Study:
    """A workload on a machine.

    Attributes
    ----------
    settings : Settings, optional
        Constants of ``laps-sd``; a preset changes those that it is about.
    """

    workload: Workload
    machine: Machine = field(default_factory=Machine)
    settings: Settings | None = None

    def run(
        self, trials: Sequence[Trial], *, workers: int = 1, progress: Callable[[], None] | None = None
    ) -> list[TrialResult]:
        """Do the trials, in processes when there are ``workers``, and return them in the order asked for."""
        results = []
        for result in self._results(trials, workers):
            results.append(result)
            if progress is not None:
                progress()
        return results

    def _results(self, trials: Sequence[Trial], workers: int) -> Iterator[TrialResult]:
        if workers <= 1 or len(trials) == 1:
            runner = _Runner(self)
            yield from map(runner.run, trials)
            return
        # Not forked: a forked child of a process with OpenMP threads (LightGBM) can hang.
        context = get_context("spawn")
        with ProcessPoolExecutor(min(workers, len(trials)), context, _start_worker, (self,)) as pool:
            yield from pool.map(_run_in_worker, trials)


class _Runner:
    """Does trials one after another; the workload of neighbouring trials is drawn once."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._draw = lru_cache(maxsize=2)(self._drawn)

    def _drawn(self, seed: int, load: float | None) -> list[ReplayRequest]:
        return self._study.workload.draw(self._study.machine, seed, load)

    def run(self, trial: Trial) -> TrialResult:
        machine = self._study.machine
        policy = make_policy(trial.policy, self._study.settings, machine.cost, machine.slots)
        result = simulate(self._draw(trial.seed, trial.load), policy, machine)
        latencies = [o.latency_s for o in result.outcomes if o.latency_s is not None]
        return TrialResult(
            trial,
            summarise(result.outcomes, rank_us=result.rank_us),
            np.quantile(latencies, CDF_QUANTILES) if latencies else np.full(len(CDF_QUANTILES), np.nan),
            slowdown_by_length(result.outcomes, parts=8),
            result.timeline,
        )


def mean_slowdowns(trials: Sequence[TrialResult]) -> list[tuple[float, float, float]]:
    """Average the parts of `slowdown_by_length` over seeds.

    Seeds in which so few requests finished that there are fewer parts than in others are left out: their parts are not
    the same ones.
    """
    most = max((len(t.slowdown) for t in trials), default=0)
    parts = zip(*(t.slowdown for t in trials if len(t.slowdown) == most), strict=True)
    return [tuple(np.mean(part, axis=0).tolist()) for part in parts]


_worker: _Runner


def _start_worker(study: Study) -> None:
    global _worker
    _worker = _Runner(study)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that was killed cannot stop its workers, and they would wait for work for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run_in_worker(trial: Trial) -> TrialResult:
    return _worker.run(trial)
