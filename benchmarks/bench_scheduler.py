"""What a scheduling round costs, and how fast a day of traffic is simulated, on one core.

    python benchmarks/bench_scheduler.py [--rounds N] [--simulate N] [--json FILE]

A round of ``laps-sd`` in steady state, as SGLang pays for it: 256 running requests made a verify step, those at their
end finished, others arrived in their stead; then ranking the queue and asking for a victim are timed, by the clock and
in CPU time (on a busy machine only the latter says what the code costs). Targets: p50 of 200 µs with 1,000 waiting and
of 1 ms with 10,000. The steps' bookkeeping (posterior, place) is timed apart, per request and step, and so is the
dearest finish: it reviews the statistics of all requests, after which the waiting ones are placed anew round by round.

An overloaded server is timed apart: 5,000 and 20,000 waiting, and in every round 10 clients give up (the engine drops
their requests and tells nobody), 10 others arrive and 4 requests finish. Targets with 20,000: p99 of a round 2 ms, the
dearest round, a review's included, 5 ms. ``--simulate N`` replays N requests at 64 slots and load 0.9 as well; targets
for 20,000: 60 s, aim 20 s.
"""

import argparse
import json
import random
import resource
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from types import SimpleNamespace
from typing import Any

from laps_sd.scheduler import CostModel, Prediction, RequestState, SurvivalCurve, make_policy
from laps_sd.scheduler.simulator.engine import simulate
from laps_sd.scheduler.simulator.machine import Machine
from laps_sd.scheduler.simulator.workload import (
    ReplayRequest,
    at_load,
    gamma_arrivals,
    geometric_accept_lengths,
    with_arrivals,
)
from laps_sd.serving.requests.exchange import Attachment
from laps_sd.serving.requests.scheduler_side import SchedulerSide

RUNNING = 256
PLAIN = {
    "max_new_tokens": 4096, "ignore_eos": False, "stop_strs": [], "stop_regex_strs": [], "frequency_penalty": 0.0,
    "presence_penalty": 0.0, "repetition_penalty": 1.0, "min_new_tokens": 0,
}  # fmt: skip
WARM_UP = 50  # rounds that are not counted
TARGET_US = {1_000: 200, 10_000: 1_000}
OVERLOADS = (5_000, 20_000)
TURNOVER = 10  # requests that are dropped, and arrive, in every round of an overload


@dataclass(slots=True, eq=False)
class Request:
    """What the scheduler's side reads of SGLang's request, and how long the request will really be."""

    true_tokens: float
    origin_input_ids: range
    output_ids: list[int] = field(default_factory=list)
    sampling_params: Any = field(default_factory=lambda: SimpleNamespace(**PLAIN))
    time_stats: Any = field(default_factory=lambda: SimpleNamespace(prefill_finished_time=0.0))
    priority: int | None = None
    num_matched_prefix_tokens: int = 0
    prefix_len: int = 0
    laps_sd: Any = None

    # What a plain request asks for, and one that goes on: nothing special, alike for all.
    to_finish = beam_group = session = session_generation = grammar = custom_logit_processor = None
    multimodal_inputs = input_embeds = positional_embed_overrides = token_type_ids = None
    return_hidden_states = return_routed_experts = return_indexer_topk = False

    @property
    def output_ids_through_stop(self) -> list[int]:
        """All of the answer: none runs past its end."""
        return self.output_ids

    def finished(self) -> bool:
        """Whether it has ended."""
        return False


class TimedSide(SchedulerSide):
    """Times what a new request costs, once: its state, posterior and place are made when it is first ranked."""

    new_s = 0.0

    def _waiting_state(self, req: Any) -> RequestState:
        began = time.perf_counter()
        state = super()._waiting_state(req)
        self.new_s += time.perf_counter() - began
        return state


def arrive(side: SchedulerSide, rng: random.Random) -> Request:
    """One request with a prediction of 32 edges, as the predictors make them, and a length drawn from it."""
    median, sigma = rng.lognormvariate(5, 1), 0.7
    prediction = Prediction(SurvivalCurve.lognormal(median, sigma), rng.uniform(1.2, 4.5), 16.0)
    request = Request(min(median * rng.lognormvariate(0, sigma), 4096), range(rng.randint(20, 2000)))
    side.on_received(request, Attachment(prediction))
    return request


def time_rounds(waiting_count: int, rounds: int) -> dict[str, float]:
    """Microseconds per round and per request and step, in steady state, and milliseconds of the dearest finish."""
    rng = random.Random(0)  # noqa: S311 - test data
    cost = CostModel(step_s=0.025, prefill_s=0.015, prefill_s_per_token=0.0001)
    side = TimedSide(make_policy("laps-sd", None, cost, RUNNING), max_correct_drafts=5)
    waiting = [arrive(side, rng) for _ in range(RUNNING + waiting_count)]
    side.rank(waiting)
    running: list[Request] = []
    ranking, known, cpu, steps, finishes = [], [], [], [], []
    for number in range(WARM_UP + rounds):
        while len(running) < RUNNING:  # as SGLang: taken out of the queue, new and displaced ones appended
            side.on_admit(waiting[0])
            running.append(waiting.pop(0))
        waiting += [arrive(side, rng) for _ in range(waiting_count - len(waiting))]
        began = time.perf_counter()
        ended = []
        for request in running:
            k = rng.randrange(6)
            side.on_step(request, k, 5, k + 1)
            request.output_ids += range(k + 1)
            if len(request.output_ids) >= request.true_tokens:
                ended.append(request)
        stepped = time.perf_counter()
        for request in ended:
            began_finish = time.perf_counter()
            running.remove(request)
            side.on_finish(request, cut=False)
            finishes.append((time.perf_counter() - began_finish) * 1e3)
        side.new_s = 0.0
        before, before_cpu = time.perf_counter(), time.process_time()
        side.rank(waiting)
        victim = side.victim(waiting[0], running)
        after, after_cpu = time.perf_counter(), time.process_time()
        if number >= WARM_UP:
            ranking.append((after - before) * 1e6)
            known.append((after - before - side.new_s) * 1e6)
            cpu.append((after_cpu - before_cpu) * 1e6)
            steps.append((stepped - began) / RUNNING * 1e6)
        if victim is not None:
            running.remove(victim)
            side.on_preempt(victim, 0, "slots")
            waiting.append(victim)
    cuts, cpu_cuts = quantiles(ranking, n=100), quantiles(cpu, n=100)
    return {
        "rank_us_p50": cuts[49],
        "rank_us_p99": cuts[98],
        "known_us_p50": quantiles(known, n=100)[49],
        "rank_cpu_us_p50": cpu_cuts[49],
        "rank_cpu_us_p99": cpu_cuts[98],
        "step_us_p50": quantiles(steps, n=100)[49],
        "finishes_per_round": len(finishes) / (WARM_UP + rounds),
        "finish_ms_max": max(finishes, default=0.0),
    }


def time_overload(waiting_count: int, rounds: int) -> dict[str, float]:
    """Milliseconds of a round, new states and finishes included, while clients give up and others come."""
    rng = random.Random(0)  # noqa: S311 - test data
    cost = CostModel(step_s=0.025, prefill_s=0.015, prefill_s_per_token=0.0001)
    side = SchedulerSide(make_policy("laps-sd", None, cost, RUNNING), max_correct_drafts=5)
    waiting = [arrive(side, rng) for _ in range(waiting_count + RUNNING)]
    began = time.perf_counter()
    side.rank(waiting)
    first = (time.perf_counter() - began) * 1e3
    running: list[Request] = []
    took, reviewed = [], []
    for number in range(WARM_UP + rounds):
        while len(running) < RUNNING:
            side.on_admit(waiting[0])
            running.append(waiting.pop(0))
        for _ in range(TURNOVER):
            del waiting[rng.randrange(len(waiting))]
        waiting += [arrive(side, rng) for _ in range(waiting_count - len(waiting))]
        for request in running:
            side.on_step(request, 2, 5, 3)
            request.output_ids += range(3)
        ended = [running.pop(rng.randrange(len(running))) for _ in range(4)]
        review = side.policy.population.lengths  # type: ignore[attr-defined]
        began, began_cpu = time.perf_counter(), time.process_time()
        for request in ended:
            side.on_finish(request, cut=False)
        side.rank(waiting)
        side.victim(waiting[0], running)
        ms, cpu_ms = (time.perf_counter() - began) * 1e3, (time.process_time() - began_cpu) * 1e3
        if number >= WARM_UP:
            took.append((ms, cpu_ms))
            if side.policy.population.lengths is not review:  # type: ignore[attr-defined]
                reviewed.append(cpu_ms)
    wall, cpu = (sorted(column) for column in zip(*took, strict=True))
    return {
        "first_ms": first,
        "round_ms_p50": quantiles(wall, n=100)[49],
        "round_ms_p99": quantiles(wall, n=100)[98],
        "round_ms_max": wall[-1],
        "round_cpu_ms_p50": quantiles(cpu, n=100)[49],
        "round_cpu_ms_p99": quantiles(cpu, n=100)[98],
        "round_cpu_ms_max": cpu[-1],
        "review_cpu_ms_max": max(reviewed, default=0.0),
    }


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
            f"p99 {row['rank_us_p99']:.0f} µs (CPU {row['rank_cpu_us_p50']:.0f} and {row['rank_cpu_us_p99']:.0f}), "
            f"p50 without making the states of new requests {row['known_us_p50']:.0f} µs; "
            f"a step {row['step_us_p50']:.2f} µs per request; {row['finishes_per_round']:.1f} finishes a round, "
            f"the dearest {row['finish_ms_max']:.0f} ms"
        )
    for waiting in OVERLOADS:
        figures[f"overload_{waiting}"] = row = time_overload(waiting, args.rounds)
        print(
            f"overload, {waiting:6,d} waiting, {TURNOVER} dropped and {TURNOVER} new a round: first ranking "
            f"{row['first_ms']:.0f} ms; round p50 {row['round_ms_p50']:.2f}, p99 {row['round_ms_p99']:.2f}, dearest "
            f"{row['round_ms_max']:.2f} ms (CPU {row['round_cpu_ms_p50']:.2f}, {row['round_cpu_ms_p99']:.2f} and "
            f"{row['round_cpu_ms_max']:.2f}; dearest with a review {row['review_cpu_ms_max']:.2f})"
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
