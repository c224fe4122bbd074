"""The simulator against reality: the very requests of a turn, simulated under its policy, beside what was measured.

In rounds a simulated step or prefill costs 1, so only decisions differ; in seconds they cost what the log of the same
turn says. The policy, its settings and the predictions are those of the server.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from laps_sd.scheduler import (
    CostModel,
    Machine,
    PosteriorSettings,
    Prediction,
    ReplayRequest,
    RequestOutcome,
    Settings,
    make_policy,
    policy_names,
    simulate,
)
from laps_sd.scheduler.outcomes import Spread, spread
from laps_sd.scheduler.round_fit import RoundFit, fit_rounds
from laps_sd.scheduler.simulator.workload import cut
from laps_sd.serving.bench.load import Json, LoadResult
from laps_sd.serving.bench.names import of_ours
from laps_sd.serving.bench.round_log import RoundsSeen, read_rounds
from laps_sd.serving.bench.turn import Turn

#: A pass of the model costs 1, whatever it does: seconds are rounds then.
ROUNDS = CostModel(step_s=1.0, prefill_s=1.0)
#: What is compared of each policy.
STATISTICS = ("mean", "p50", "p99")


def against_simulator(turns: Sequence[Turn], slots: int, chunk_tokens: int = 8192) -> Json | None:
    """Simulate every turn whose rounds were logged; None where there is none.

    Returns
    -------
    dict
        ``cost``: for each policy the fitted coefficients with their intervals. ``figures``: a row for each policy,
        unit (rounds, seconds) and statistic with ``measured``, ``simulated`` and ``error``. ``ratios``: the same of
        each policy's mean over the first policy's.
    """
    simulated: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    costs: Json = {}
    for turn in turns:
        name = of_ours(turn.policy)
        if turn.log is None or not turn.log.exists() or name not in policy_names():
            continue
        seen = read_rounds(turn.log)
        served = [r for r in turn.results if r.latency_rounds is not None]
        if not served:
            continue
        fitted = fit_of(seen)
        costs.setdefault(turn.policy, []).append({k: v for k, v in asdict(fitted).items() if k != "model"})
        for unit, outcomes in simulate_turn(name, served, seen, fitted.model, slots, chunk_tokens).items():
            ours, theirs = simulated.setdefault(turn.policy, {}).setdefault(unit, ([], []))
            ours += [_measured(result, unit) for result in served]
            theirs += [o.latency_s for o in outcomes if o.latency_s is not None]
    if not simulated:
        return None
    spreads = {
        policy: {unit: (spread(measured), spread(found)) for unit, (measured, found) in units.items()}
        for policy, units in simulated.items()
    }
    return {"cost": costs, "figures": _figures(spreads), "ratios": _ratios(spreads)}


def simulate_turn(
    policy: str, served: Sequence[LoadResult], seen: RoundsSeen, cost: CostModel, slots: int, chunk_tokens: int
) -> dict[str, list[RequestOutcome]]:
    """Simulate the requests of a turn, by ``rounds`` and by ``seconds``."""
    settings = _settings(seen)
    found = {}
    for unit, machine_cost in (("rounds", ROUNDS), ("seconds", cost)):
        ordered = sorted(served, key=lambda r: r.arrival_s)
        requests = [replayed(result, seen, unit) for result in ordered]
        machine = Machine(slots=slots, cost=machine_cost, chunk_tokens=chunk_tokens)
        found[unit] = simulate(requests, make_policy(policy, settings, cost, slots), machine).outcomes
    return found


def fit_of(seen: RoundsSeen) -> RoundFit:
    """Fit a cost model to a log."""
    timed = seen.seconds()
    steps = [(line["requests"], seconds) for line, seconds in timed if line["kind"] == "decode"]
    prefills = [(line["tokens"], seconds) for line, seconds in timed if line["kind"] == "prefill"]
    return fit_rounds(steps, prefills)


def replayed(result: LoadResult, seen: RoundsSeen, unit: str) -> ReplayRequest:
    """Return what the simulator replays of a request: it came, was predicted and was accepted as it really was."""
    meta = result.meta_info
    assert result.rounds is not None
    logged = seen.requests[meta["id"]]
    tokens: int = meta["completion_tokens"]
    wire: Any = logged["prediction"]  # Any: JSON, which `from_wire` checks
    accepted = cut(logged["accept_lengths"], tokens - 1)
    return ReplayRequest(
        request_id=result.request_id,
        arrival_s=float(result.rounds["arrival"]) if unit == "rounds" else result.arrival_s,
        prompt_tokens=meta["prompt_tokens"],
        output_tokens=tokens,
        accept_lengths=accepted,
        max_correct_drafts=seen.most_correct_drafts,
        max_new_tokens=result.max_new_tokens,
        prediction=None if wire is None else Prediction.from_wire(wire),
        cached_tokens=min(meta.get("cached_tokens", 0), meta["prompt_tokens"] - 1),
    )


def _settings(seen: RoundsSeen) -> Settings:
    """Return the constants that the server's policy had; the defaults where SGLang's own ranked."""
    if seen.policy is None:
        return Settings()
    values: dict[str, Any] = dict(seen.policy["settings"])  # Any: `Settings` checks each value
    return Settings(**{**values, "posterior": PosteriorSettings(**values["posterior"])})


def _measured(result: LoadResult, unit: str) -> float:
    latency = result.latency_rounds if unit == "rounds" else result.latency_s
    assert latency is not None
    return float(latency)


#: By policy and unit: measured and simulated.
_Spreads = dict[str, dict[str, tuple[Spread | None, Spread | None]]]


def _figures(spreads: _Spreads) -> list[Json]:
    return [
        _row(policy, unit, name, measured[name], found[name])  # type: ignore[literal-required]
        for policy, units in spreads.items()
        for unit, (measured, found) in units.items()
        if measured is not None and found is not None
        for name in STATISTICS
    ]


def _ratios(spreads: _Spreads) -> list[Json]:
    first, *others = spreads
    rows = []
    for policy in others:
        for unit in ("rounds", "seconds"):
            (base, base_found), (ours, found) = spreads[first][unit], spreads[policy][unit]
            if base and base_found and ours and found:
                ratio, simulated = ours["mean"] / base["mean"], found["mean"] / base_found["mean"]
                rows.append(_row(f"{policy} / {first}", unit, "mean", ratio, simulated))
    return rows


def _row(policy: str, unit: str, statistic: str, measured: float, simulated: float) -> Json:
    error = simulated / measured - 1 if measured else float(np.nan)
    return {"policy": policy, "unit": unit, "statistic": statistic, "measured": measured, "simulated": simulated,
            "error": error}  # fmt: skip
