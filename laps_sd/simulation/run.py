"""What ``laps-sd simulate`` does: read, replay, average."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from laps_sd.errors import InputError
from laps_sd.scheduler.outcomes import REFERENCE, PolicySummary, average, close_gaps, gap_closed
from laps_sd.scheduler.posterior.settings import PosteriorSettings
from laps_sd.scheduler.settings import PRESETS, Settings
from laps_sd.scheduler.simulator.machine import Machine
from laps_sd.scheduler.simulator.study import Study, Trial, TrialResult, Workload, mean_slowdowns
from laps_sd.scheduler.simulator.workload import NoLoadError, ReplayRequest, load_of
from laps_sd.simulation.options import read_cost_model, read_settings
from laps_sd.simulation.refine import parse_refine
from laps_sd.simulation.replay import donors_of, find_predictions, parse_predictions, replay_request

if TYPE_CHECKING:
    from laps_sd.data import RequestRecord

#: What ``gap_closed`` is measured between; replayed even when nobody asks for them.
REFERENCES = ("fcfs", REFERENCE)
#: Seeds of the further loads: they draw a line, the figures come from the load asked for.
SWEEP_SEEDS = 3
#: The load of a trace without arrivals when none is asked for.
DEFAULT_LOAD = 0.9


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of the command."""

    trace: Path
    bundle: str | None
    policies: tuple[str, ...]
    slots: int
    load: float | None
    rate: float | None
    burstiness: float
    kv_tokens: int | None
    keep_kv: bool
    chunk_tokens: int
    cost_model: str
    predictions: str | None
    refine: str | None
    acceptance_from: Path | None
    requests: int | None
    seeds: tuple[int, ...]
    sweep: tuple[float, ...]
    ablation: bool
    settings: tuple[str, ...]
    workers: int | None

    @property
    def presets(self) -> tuple[str, ...]:
        """The presets of laps-sd, if asked for, and laps-sd itself: they are told relative to it."""
        return ("laps-sd", *(f"laps-sd:{preset}" for preset in PRESETS)) if self.ablation else ()

    @property
    def names(self) -> tuple[str, ...]:
        """Every policy that is replayed at the load asked for."""
        return tuple(dict.fromkeys((*self.policies, *self.presets, *REFERENCES)))

    @property
    def trials(self) -> list[Trial]:
        """Every replay: all policies and seeds, then the further loads."""
        swept = tuple(dict.fromkeys((*self.policies, *REFERENCES)))
        return [Trial(name, seed) for seed in self.seeds for name in self.names] + [
            Trial(name, seed, load) for load in self.sweep for seed in self.seeds[:SWEEP_SEEDS] for name in swept
        ]

    @property
    def replays(self) -> int:
        """How many replays that makes."""
        return len(self.trials)


@dataclass(frozen=True, slots=True)
class Results:
    """Averages over seeds, and the replays behind them.

    Attributes
    ----------
    workload : dict
        What was replayed on what.
    policies, ablation : dict
        Averaged summaries, of the policies asked for and of the presets of ``laps-sd``.
    trials : dict
        The replays of each of them, one a seed.
    sweep : dict
        The same summaries at further loads.
    """

    workload: dict[str, Any]
    policies: dict[str, PolicySummary]
    ablation: dict[str, PolicySummary]
    trials: dict[str, list[TrialResult]]
    sweep: dict[float, dict[str, PolicySummary]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the keys of the contract, and what else is known."""
        return {
            "workload": self.workload,
            "policies": self.policies,
            "ablation": self.ablation or None,
            "seeds": {name: self.per_seed(name) for name in self.trials},
            "slowdown_by_length": {
                name: [dict(zip(("tokens_from", "tokens_to", "slowdown_mean"), part, strict=True)) for part in parts]
                for name, parts in ((name, mean_slowdowns(trials)) for name, trials in self.trials.items())
            },
            "sweep": [{"load": load, "policies": table} for load, table in sorted(self.sweep.items())] or None,
        }

    def per_seed(self, name: str) -> dict[str, Any]:
        """Return the figures of each seed."""
        means, fcfs, oracle = (self._means(n) for n in (name, *REFERENCES))
        gaps = [
            None if m is None or f is None or o is None else gap_closed(m, f, o)
            for m, f, o in zip(means, fcfs, oracle, strict=True)
        ]
        known = [m for m in means if m is not None]
        return {
            "seed": [t.trial.seed for t in self.trials[name]],
            "latency_mean_s": means,
            "latency_p99_s": [t.summary["latency_s"] and t.summary["latency_s"]["p99"] for t in self.trials[name]],
            "gap_closed": gaps,
            "latency_mean_std_s": float(np.std(known)) if known else None,
        }

    def _means(self, name: str) -> list[float | None]:
        spreads = [t.summary["latency_s"] for t in self.trials[name]]
        return [None if s is None else s["mean"] for s in spreads]


def run(plan: Plan, progress: Callable[[], None] | None = None) -> Results:
    """Replay as planned.

    Parameters
    ----------
    plan : Plan
        What to replay, on what, how often.
    progress : callable, optional
        Called after each of the ``plan.replays`` replays.

    Raises
    ------
    InputError
        The trace or another input cannot be used.
    """
    study, facts = _study(plan)
    workers = plan.workers if plan.workers is not None else os.cpu_count() or 1
    try:
        results = study.run(plan.trials, workers=workers, progress=progress)
    except NoLoadError as error:  # of a later seed or load than the one that was tried
        raise InputError(f"{plan.trace}: {error}") from error
    names, extra = plan.names, plan.presets
    tables = {load: _averages([r for r in results if r.trial.load == load]) for load in (None, *plan.sweep)}
    return Results(
        workload=facts,
        policies={name: tables[None][name] for name in plan.policies},
        ablation={name: tables[None][name] for name in extra},
        trials={name: [r for r in results if r.trial.load is None and r.trial.policy == name] for name in names},
        sweep={load: {name: tables[load][name] for name in plan.policies} for load in plan.sweep},
    )


def _averages(results: Sequence[TrialResult]) -> dict[str, PolicySummary]:
    names = dict.fromkeys(r.trial.policy for r in results)
    table = {name: average([r.summary for r in results if r.trial.policy == name]) for name in names}
    close_gaps(table)
    return table


def _study(plan: Plan) -> tuple[Study, dict[str, Any]]:
    from laps_sd.data import read_records

    records = read_records(plan.trace)
    usable = [r for r in records if not r.censored and r.output_tokens > 0]
    if not usable:
        raise InputError(f"{plan.trace} has no request that ended by itself with a token; there is nothing to replay")
    option = parse_predictions(
        plan.predictions, bundle=plan.bundle is not None, prompts=all(r.prompt is not None for r in usable)
    )
    readable = option.base in ("bundle", "oof") and option.corrupt is None
    refine = parse_refine(plan.refine, usual=readable and any(r.progress for r in usable))
    if refine.recorded and not readable:
        raise InputError("--refine recorded corrects predictions of bundle or oof; give --refine noise for others")
    predictions, posterior, refinements = find_predictions(
        option, usable, bundle=plan.bundle, seed=plan.seeds[0], refine=refine.recorded
    )
    donors = donors_of(read_records(plan.acceptance_from)) if plan.acceptance_from is not None else []
    if plan.acceptance_from is not None and not donors:
        raise InputError(f"--acceptance-from {plan.acceptance_from}: no request there has accept_lengths to lend")
    rng = np.random.default_rng(plan.seeds[0])
    try:
        known = refinements or [()] * len(usable)
        requests = [
            replay_request(r, p, donors, rng, own) for r, p, own in zip(usable, predictions, known, strict=True)
        ]
    except ValueError as error:
        raise InputError(f"{plan.trace}: {error}") from error
    timed = plan.rate is None and _has_arrivals(usable)
    if timed:
        requests.sort(key=lambda r: r.arrival_s)
    machine = Machine(plan.slots, read_cost_model(plan.cost_model), plan.kv_tokens, plan.chunk_tokens, plan.keep_kv)
    workload = Workload(
        requests=tuple(requests),
        timed=timed,
        n=plan.requests,
        load=DEFAULT_LOAD if plan.load is None and plan.rate is None and not timed else plan.load,
        rate=plan.rate,
        cv=plan.burstiness,
        noise=option.sigma,
        corrupt=option.corrupt,
        refine=refine.quality,
    )
    try:
        settings = read_settings(plan.settings)
        if posterior is not None:
            settings = replace(settings or Settings(), posterior=posterior)
        study = Study(workload, machine, settings)
        first = workload.draw(machine, plan.seeds[0])
    except ValueError as error:
        raise InputError(str(error)) from error
    offered = load_of(first, machine.cost, machine.slots) if len(first) > 1 else None
    offered = offered if offered is not None and isfinite(offered) else None  # all at once: no load
    facts = {
        "n": len(first),
        "slots": plan.slots,
        "load": offered if workload.load is None else workload.load,
        "load_offered": offered,
        "seed": plan.seeds[0],
        "seeds": len(plan.seeds),
        "rate": plan.rate,
        "burstiness": None if timed else plan.burstiness,
        "arrivals": "trace" if timed else "random",
        "trace": _text(plan.trace.name),
        "span_s": first[-1].arrival_s - first[0].arrival_s if timed else None,
        "censored_left_out": sum(r.censored for r in records),
        "aborted_left_out": sum(r.finish_reason == "abort" for r in records),
        "empty_left_out": sum(not r.censored and r.output_tokens == 0 for r in records),
        "predictions": _text(str(option)),
        "refine": str(refine),
        "predictions_kendall_tau": _kendall_tau(first),
        "accept_length_mean": float(np.mean([r.accept_length for r in first])),
        "cost_model": machine.cost.to_dict(),
        "kv_tokens": plan.kv_tokens,
        "keep_kv": plan.keep_kv,
        "settings": list(plan.settings),
        "posterior": asdict(study.settings.posterior if study.settings is not None else PosteriorSettings()),
    }
    return study, facts


def _text(name: str) -> str:
    """Return a file name as text: its bytes need not be, and neither JSON nor a terminal would take them."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def _has_arrivals(records: Sequence[RequestRecord]) -> bool:
    arrivals = [r.arrival_s for r in records]
    return None not in arrivals and len(set(arrivals)) > 1


def _kendall_tau(requests: Sequence[ReplayRequest]) -> float | None:
    """Kendall's τ between predicted and real output length; None without predictions, or where it is undefined."""
    from laps_sd.training.evaluation.metrics import kendall_tau

    pairs = [(r.prediction.length.mean(), r.output_tokens) for r in requests if r.prediction is not None]
    if not pairs or len(pairs) < len(requests):
        return None
    return kendall_tau(*zip(*pairs, strict=True))
