"""Write docs/results-faults.md: real servers under twice their load and with parts that fail, and what is lost.

.venv/bin/python benchmarks/faults.py                      # about 15 minutes on two quiet cores
.venv/bin/python benchmarks/faults.py --only "half of the clients hang up"

Rows are kept in faults.jsonl as they come. Those that stand there are not run again; the page is written when all do.
"""

import argparse
import asyncio
import json
import os
import platform
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import yaml
from soak_inside import Fault, install

from laps_sd.data import builtin_trace, read_records
from laps_sd.data.prompts import generate_prompts
from laps_sd.files import write_text
from laps_sd.predictors import fit_bundle
from laps_sd.serving.bench.arrivals import Arrivals
from laps_sd.serving.bench.calibration import capacity_of
from laps_sd.serving.bench.load import LoadRequest, LoadResult, at_times, send_load, workload
from laps_sd.serving.bench.round_log import read_rounds
from laps_sd.serving.cpu.model import draft_model
from laps_sd.serving.flags import ROUNDS_ENV
from laps_sd.serving.process.server import SglangServer
from laps_sd.serving.process.speculation import speculation_args

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results-faults.md"
SLOTS = 4
#: The page says what the policy promises: nobody waits more rounds than this, beyond the rounds that it runs.
BOUND = "each request has a deadline (`policy.patience`), from which it goes before all others"


@dataclass
class Row:
    """One line of the table."""

    fault: str
    sent: int
    answered: int
    lost: str
    during: str
    afterwards: str


@dataclass
class Setting:
    """What every scenario shares.

    Attributes
    ----------
    folder : Path
        Of its files.
    bundle : Path
    requests : list of LoadRequest
    per_second : float
        The capacity of the server, requests a second.
    """

    folder: Path
    bundle: Path
    requests: list[LoadRequest]
    per_second: float = 0.0

    @contextmanager
    def server(
        self, name: str, config: dict | None = None, env: dict[str, str] | None = None
    ) -> Iterator[SglangServer]:
        """A server with laps-sd; its log goes nowhere, so that a full disk is the record's."""
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(config or {}))
        args = [
            *speculation_args("ngram"),
            *("--max-running-requests", str(SLOTS), "--enable-metrics", "--schedule-policy", "laps-sd"),
            *("--laps-sd-bundle", str(self.bundle), "--laps-sd-config", str(path)),
        ]
        log = Path(os.devnull) if "record" in (config or {}) else self.folder / f"{name}.log"
        with SglangServer(args, cpu=True, model=draft_model(8), log=log, env=env) as server:
            server.wait_ready()
            yield server

    def at_load(self, load: float, seed: int) -> list[LoadRequest]:
        """The requests at a multiple of the capacity."""
        arrivals = Arrivals("poisson", load=load)
        return at_times(self.requests, arrivals.at(len(self.requests), seed, self.per_second))


def recovered(server: SglangServer, some: list[LoadRequest]) -> str:
    """Whether a few fresh requests are answered, and who ranks."""
    results = send_load(server.url, some)
    answered = sum(r.finish_s is not None for r in results)
    active = server.metrics().get("laps_sd_active", 0)
    return f"{answered} of {len(some)} answered, laps-sd {'ranks' if active else 'does not rank'}"


def counted(results: list[LoadResult]) -> tuple[int, str]:
    """How many were answered, and what the others were told."""
    answered = sum(r.finish_s is not None for r in results)
    reasons = sorted({r.error or "" for r in results if r.finish_s is None})
    return answered, "none" if not reasons else f"{len(results) - answered}: {'; '.join(reasons)[:90]}"


def calibrate(setting: Setting) -> None:
    """Measure the capacity with a burst under fcfs of ours."""
    log = setting.folder / "rounds.jsonl"
    log.unlink(missing_ok=True)
    burst = setting.requests[: 8 * SLOTS]
    with setting.server("calibration", {"policy": {"name": "fcfs"}}, {ROUNDS_ENV: str(log)}) as server:
        results = send_load(server.url, burst)
    setting.per_second = capacity_of(results, read_rounds(log), SLOTS).per_second


def overload(setting: Setting) -> Row:
    """Twice as many requests as the server can do."""
    log = setting.folder / "overload.jsonl"
    with setting.server("overload", env={ROUNDS_ENV: str(log)}) as server:
        results = send_load(server.url, setting.at_load(2.0, 1), timeout_s=3600)
        after = recovered(server, setting.requests[:5])
    answered, lost = counted(results)
    longest = max((r.latency_rounds or 0 for r in results), default=0)
    seen = read_rounds(log)
    queue = max(line["waiting"] for line in seen.rounds)
    during = f"up to {queue} waiting; longest latency {longest:,} of {seen.rounds[-1]['round']:,} rounds"
    return Row("twice the sustainable load", len(results), answered, lost, during, after)


def hang_up(setting: Setting) -> Row:
    """Every second client leaves after its first tokens, or before them."""
    requests = setting.at_load(1.5, 2)
    with setting.server("hang-up") as server:
        answered, left = asyncio.run(_hang_up(server.url, requests))
        idle = _wait(lambda: _busy(server) == 0)
        after = recovered(server, setting.requests[:5])
    stayed = len(requests) - left
    lost = "none" if answered == stayed else f"{stayed - answered}"
    return Row(
        "half of the clients hang up", len(requests), answered, lost,
        f"{left} left; their slots and KV tokens {'were free' if idle else 'were NOT free'} afterwards", after,
    )  # fmt: skip


async def _hang_up(url: str, requests: list[LoadRequest]) -> tuple[int, int]:
    started, answered, left = time.perf_counter(), 0, 0
    async with httpx.AsyncClient(base_url=url, timeout=3600, trust_env=False) as client:

        async def one(place: int, request: LoadRequest) -> None:
            nonlocal answered, left
            await asyncio.sleep(max(0.0, request.arrival - (time.perf_counter() - started)))
            body = {**request.body, "stream": True}
            messages = 0
            async with client.stream("POST", "/generate", json=body) as answer:
                if place % 4 == 1:  # before the first token
                    left += 1
                    return
                async for line in answer.aiter_lines():
                    messages += line.startswith("data:")
                    if place % 4 == 3 and messages >= 3:
                        left += 1
                        return
            answered += 1

        await asyncio.gather(*(one(i, r) for i, r in enumerate(requests)))
    return answered, left


def slow_predictor(setting: Setting) -> Row:
    """No prediction is ready in time."""
    with setting.server("slow", {"prediction": {"timeout_ms": 0.001}}) as server:
        return unpredicted(setting, server, "a predictor too slow", 3)


def raising_predictor(setting: Setting) -> Row:
    """Every prediction raises from the fourth on."""
    fault = Fault("laps_sd.predictors.bundle:PredictorBundle.predict_one", 4, "ZeroDivisionError")
    with setting.server("raising", env=dict(install(setting.folder / "inside", fault))) as server:
        return unpredicted(setting, server, "a predictor that raises", 4)


def unpredicted(setting: Setting, server: SglangServer, fault: str, seed: int) -> Row:
    """Send requests to a server that predicts next to nothing."""
    results = send_load(server.url, setting.at_load(1.0, seed))
    missing = server.metrics().get("laps_sd_unpredicted_requests_total", 0)
    after = recovered(server, setting.requests[:5])
    answered, lost = counted(results)
    return Row(fault, len(results), answered, lost, f"{missing:.0f} requests ranked unpredicted", after)


def full_disk(setting: Setting) -> Row:
    """The disk takes no more of the record for a while (a limit on the size of files), then it does again."""
    trace = setting.folder / "full" / "trace.jsonl"
    trace.parent.mkdir()
    requests = setting.at_load(1.0, 5)
    with setting.server("full", {"record": {"path": str(trace)}}) as server:
        send_load(server.url, requests[:4])
        _wait(lambda: trace.exists() and trace.stat().st_size > 0)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (trace.stat().st_size + 100, resource.RLIM_INFINITY))
        results = send_load(server.url, requests)
        held = len(read_records(trace))
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        wanted = 4 + len(requests)
        _wait(lambda: len(read_records(trace)) >= wanted, 180)
        written, lost_records = len(read_records(trace)), server.metrics().get("laps_sd_unrecorded_requests_total", 0)
        after = recovered(server, setting.requests[:5])
    answered, lost = counted(results)
    during = f"{held} of {wanted} records on disk while it was full, {written} after; {lost_records:.0f} given up"
    return Row("the record's disk full for a while", len(results), answered, lost, during, after)


def killed(setting: Setting) -> Row:
    """The server is killed with requests under way, and another one goes on with the same record."""
    trace = setting.folder / "killed" / "trace.jsonl"
    trace.parent.mkdir()
    config = {"record": {"path": str(trace)}}
    requests = setting.at_load(1.0, 6)
    done = 0

    def shoot(count: int, _of: int) -> None:
        nonlocal done
        done = max(done, count)
        if count == len(requests) // 2:
            _wait(lambda: trace.exists() and len(read_records(trace)) >= 1)
            psutil.Process(server.pid).kill()

    with setting.server("killed", config) as server:
        results = send_load(server.url, requests, progress=shoot)
    answered, lost = counted(results)
    kept = len(read_records(trace))
    with setting.server("restarted", config) as again:
        after = recovered(again, setting.requests[:5])
        _wait(lambda: len(read_records(trace)) >= kept + 5)
    whole = len(read_records(trace))
    during = f"{kept} of {answered} answers were in the record, and {whole - kept} of 5 more after the restart"
    return Row("killed (SIGKILL) and restarted", len(results), answered, lost, during, after)


SCENARIOS: dict[str, Callable[[Setting], Row]] = {
    "twice the sustainable load": overload,
    "half of the clients hang up": hang_up,
    "a predictor too slow": slow_predictor,
    "a predictor that raises": raising_predictor,
    "the record's disk full for a while": full_disk,
    "killed (SIGKILL) and restarted": killed,
}


def _busy(server: SglangServer) -> float:
    metrics = server.metrics()
    return metrics.get("sglang:num_running_reqs", 0) + metrics.get("sglang:num_queue_reqs", 0)


def _wait(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def main() -> None:
    """Run the scenarios and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100, help="of each scenario")
    parser.add_argument("--overload", type=int, default=1000, help="of the first one")
    parser.add_argument("--only", choices=list(SCENARIOS), help="one scenario")
    parser.add_argument("--keep", default="faults.jsonl", help="file of the rows so far")
    options = parser.parse_args()
    kept = Path(options.keep)
    rows = {row["fault"]: Row(**row) for row in map(json.loads, kept.read_text().splitlines() if kept.exists() else [])}
    wanted = [name for name in SCENARIOS if name not in rows and options.only in (None, name)]
    with tempfile.TemporaryDirectory() as folder:
        bundle = fit_bundle(list(builtin_trace("ngram")), seed=0).save(Path(folder) / "bundle")
        prompts = generate_prompts(max(options.requests, options.overload), 0)
        for short in (True, False):  # short answers under twice the load, or it would take all day
            chosen = [SCENARIOS[name] for name in wanted if (SCENARIOS[name] is overload) == short]
            if chosen:
                asked = workload(prompts, draft_model(8), 4 if short else 24, cpu=True)
                setting = Setting(Path(folder), bundle, asked[: options.overload if short else options.requests])
                calibrate(setting)
            for scenario in chosen:
                row = scenario(setting)
                rows[row.fault] = row
                print(json.dumps(vars(row)), flush=True)
                with kept.open("a") as file:
                    file.write(json.dumps(vars(row)) + "\n")
    if len(rows) == len(SCENARIOS):
        said = f"--requests {options.requests} --overload {options.overload}"
        write_text(PAGE, page([rows[name] for name in SCENARIOS], said))


def page(rows: list[Row], options: str) -> str:
    """Return the Markdown page."""
    lines = [f"| {r.fault} | {r.sent} | {r.answered} | {r.lost} | {r.during} | {r.afterwards} |" for r in rows]
    table = "\n".join(lines)
    return f"""# Faults and overload

Generated by `python benchmarks/faults.py {options}`; do not edit.

| what happens | sent | answered | lost | meanwhile | five requests afterwards |
|---|---|---|---|---|---|
{table}

Real servers on the CPU stand-in, the first 8 layers of SmolLM2-135M-Instruct with n-gram drafts, {SLOTS} slots,
answers of at most 24 tokens (4 under twice the load); laps-sd with a bundle trained on the built-in trace.
A server's own warm-up request stands in the record too. Nobody waits for ever: {BOUND}.
{os.cpu_count()} cores ({platform.machine()}).
"""


if __name__ == "__main__":
    main()
