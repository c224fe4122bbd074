"""What a scheduling round costs, and how fast a day of traffic is simulated, on one core.

    python benchmarks/bench_scheduler.py [--rounds N] [--simulate N] [--json FILE]

A round of ``laps-sd``: one verify step of 256 running requests happened, requests arrived, then ``start_round``,
``rank`` and ``victim`` are timed. Targets: p50 of 200 µs with 1,000 waiting and of 1 ms with 10,000. The steps'
bookkeeping (posterior, place) is timed apart, per request and step. ``--simulate N`` replays N requests at 64 slots
and load 0.9 as well; targets for 20,000: 60 s, aim 20 s.
"""

import argparse
import json
import random
import resource
import time
from pathlib import Path
from statistics import quantiles
from typing import Any

from laps_sd.scheduler import CostModel, Prediction, RequestState, SurvivalCurve, make_policy, new_request
from laps_sd.scheduler.policy import Policy
from laps_sd.scheduler.simulator import Machine, simulate
from laps_sd.scheduler.workload import ReplayRequest, at_load, gamma_arrivals, geometric_accept_lengths, with_arrivals

RUNNING = 256
TARGET_US = {1_000: 200, 10_000: 1_000}


def arrive(policy: Policy, rng: random.Random, number: int) -> RequestState:
    """One request with a prediction of 32 edges, as the predictors make them."""
    curve = SurvivalCurve.lognormal(rng.lognormvariate(5, 1), 0.7)
    prediction = Prediction(curve, rng.uniform(1.2, 4.5), 16.0)
    state = new_request(number, rng.randint(20, 2000), settings=policy.settings, prediction=prediction)
    policy.on_arrival(state)
    return state


def time_rounds(waiting_count: int, rounds: int) -> dict[str, float]:
    """Microseconds per round, and per request and step."""
    rng = random.Random(0)  # noqa: S311 - test data
    cost = CostModel(step_s=0.025, prefill_s_per_token=0.0001)
    policy = make_policy("laps-sd", None, cost, RUNNING)
    states = [arrive(policy, rng, i) for i in range(RUNNING + waiting_count)]
    running, waiting = states[:RUNNING], states[RUNNING:]
    for state in running:
        policy.on_admit(state)
    number, ranking, steps = len(states), [], []
    for _ in range(rounds):
        began = time.perf_counter()
        for state in running:
            k = rng.randrange(6)
            policy.on_step(state, k, 5, k + 1)
        steps.append((time.perf_counter() - began) / RUNNING * 1e6)
        waiting.append(arrive(policy, rng, number))
        number += 1
        began = time.perf_counter()
        policy.start_round()
        policy.rank(waiting)
        victim = policy.victim(waiting[0], running)
        ranking.append((time.perf_counter() - began) * 1e6)
        # One slot changes hands per round: a preemption, or the end of a running request.
        leaving = victim or running[rng.randrange(RUNNING)]
        running.remove(leaving)
        if victim is None:
            policy.on_finish(leaving)
        else:
            policy.on_preempt(leaving, leaving.context_tokens)
            waiting.append(leaving)
        running.append(waiting.pop(0))
        policy.on_admit(running[-1])
    cuts, per_step = quantiles(ranking, n=100), quantiles(steps, n=100)
    return {"rank_us_p50": cuts[49], "rank_us_p99": cuts[98], "step_us_p50": per_step[49]}


def time_simulation(count: int) -> dict[str, float]:
    """Seconds to replay ``count`` requests of chat-like lengths at 64 slots."""
    import numpy as np

    rng = np.random.default_rng(0)
    cost = CostModel(step_s=0.025, step_s_per_request=0.0002, prefill_s_per_token=0.00005)
    requests = []
    for i in range(count):
        tokens = max(int(rng.lognormal(5.0, 0.9)), 1)
        prediction = Prediction(SurvivalCurve.lognormal(tokens * float(rng.lognormal(0, 0.6)), 0.6), 2.5, 16.0)
        steps = geometric_accept_lengths(tokens, 2.5, 5, rng)
        requests.append(ReplayRequest(f"r{i}", 0.0, int(rng.integers(20, 2000)), tokens, steps, prediction=prediction))
    requests = at_load(with_arrivals(requests, gamma_arrivals(count, 10.0, rng)), 0.9, cost, 64)
    began = time.perf_counter()
    simulate(requests, make_policy("laps-sd", None, cost, 64), Machine(64, cost))
    return {"simulated_requests": count, "simulation_s": time.perf_counter() - began}


def main() -> None:
    """Run the benchmark and print one line per queue length."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=400, help="scheduling rounds per queue length (default 400)")
    parser.add_argument("--simulate", type=int, default=0, help="also replay so many requests (default 0: do not)")
    parser.add_argument("--json", type=Path, help="write the figures there")
    args = parser.parse_args()
    figures: dict[str, Any] = {}
    for waiting, target in TARGET_US.items():
        figures[str(waiting)] = row = time_rounds(waiting, args.rounds)
        print(
            f"{RUNNING} running + {waiting:6,d} waiting: round p50 {row['rank_us_p50']:.0f} µs (target {target}), "
            f"p99 {row['rank_us_p99']:.0f} µs; a step {row['step_us_p50']:.2f} µs per request"
        )
    if args.simulate:
        figures["simulation"] = row = time_simulation(args.simulate)
        print(f"{args.simulate:,d} requests at 64 slots: {row['simulation_s']:.1f} s")
    figures["max_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"memory {figures['max_rss_mb']:.0f} MB")
    if args.json:
        args.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
