"""How fast a week's traffic is simulated, on one core, and how much memory it takes.

    python benchmarks/bench_simulator.py [--trace TRACE] [--requests N] [--slots N] [--load L] [--json FILE]

Without a trace: synthetic production-like requests (lognormal prompts and answers, bursty arrivals). With the Azure
trace of 20,000 requests (`laps-sd import arrivals`) this is the target: 64 slots through laps-sd within 20 s.
"""

import argparse
import json
import resource
import time
from pathlib import Path

import numpy as np

from laps_sd.scheduler import CostModel, make_policy
from laps_sd.scheduler.simulator.engine import simulate
from laps_sd.scheduler.simulator.machine import Machine
from laps_sd.scheduler.simulator.predictions import noisy_predictions, with_predictions
from laps_sd.scheduler.simulator.workload import (
    ReplayRequest,
    at_load,
    gamma_arrivals,
    geometric_accept_lengths,
    with_arrivals,
)

TARGET_S = 20.0
ACCEPT_LENGTH = 2.8


def synthetic(n: int, rng: np.random.Generator) -> list[ReplayRequest]:
    """Requests with the medians of the Azure 2023 conversation trace: 1,000 prompt and 130 output tokens."""
    outputs = np.clip(np.exp(rng.normal(np.log(130), 1.0, n)), 2, 1500).astype(int)
    prompts = np.clip(np.exp(rng.normal(np.log(1000), 0.9, n)), 4, 14_000).astype(int)
    requests = [
        request(str(i), 0.0, int(p), int(k), rng) for i, (p, k) in enumerate(zip(prompts, outputs, strict=True))
    ]
    return with_arrivals(requests, gamma_arrivals(n, 1.0, rng, cv=1.5))


def from_trace(path: Path, n: int, rng: np.random.Generator) -> list[ReplayRequest]:
    """The first ``n`` requests of a trace with arrivals."""
    from laps_sd.data import read_records

    records = [r for r in read_records(path) if r.output_tokens > 0 and r.arrival_s is not None][:n]
    return [request(r.request_id, r.arrival_s or 0.0, r.prompt_tokens, r.output_tokens, rng) for r in records]


def request(name: str, arrival: float, prompt: int, tokens: int, rng: np.random.Generator) -> ReplayRequest:
    """A request with drawn accept lengths."""
    accept = geometric_accept_lengths(tokens - 1, ACCEPT_LENGTH, 5, rng)
    return ReplayRequest(name, arrival, prompt, tokens, accept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--policies", default="laps-sd,fcfs")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    cost = CostModel.unit()
    requests = (
        synthetic(options.requests, rng) if options.trace is None else from_trace(options.trace, options.requests, rng)
    )
    requests = at_load(requests, options.load, cost, options.slots)
    requests = with_predictions(requests, noisy_predictions(requests, 0.6, rng))
    steps = sum(r.steps for r in requests)
    results = {}
    for name in options.policies.split(","):
        began, began_cpu = time.perf_counter(), time.process_time()
        result = simulate(requests, make_policy(name, None, cost, options.slots), Machine(options.slots, cost))
        seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
        results[name] = {
            "seconds": seconds,
            "cpu_seconds": cpu,
            "steps_per_cpu_second": steps / cpu,
            "rank_us_p50": float(np.median(result.rank_us)) if result.rank_us else None,
            "most_waiting": max(result.timeline.waiting),
        }
        print(
            f"{name}: {len(requests)} requests, {steps} verify steps in {seconds:.1f} s ({cpu:.1f} s of CPU), "
            f"{steps / cpu:,.0f} steps per CPU second, at most {max(result.timeline.waiting)} waiting"
            + (f" (target {TARGET_S:.0f} s)" if name == "laps-sd" else "")
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory {peak:.0f} MB")
    if options.json is not None:
        options.json.write_text(json.dumps({"requests": len(requests), "policies": results, "peak_mb": peak}, indent=2))


if __name__ == "__main__":
    main()
