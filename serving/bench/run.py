"""The live comparison: the same requests at the same times, on real servers, policies in turn A B C C B A."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path

from laps_sd.data import Prompt
from laps_sd.errors import InputError, WorkError
from laps_sd.serving.bench.arrivals import Arrivals, of_rate
from laps_sd.serving.bench.calibration import Capacity, capacity_of
from laps_sd.serving.bench.figures import compare_tokens, ratios_of, summary_of, write_requests
from laps_sd.serving.bench.load import Json, LoadRequest, at_times, send_load, workload
from laps_sd.serving.bench.names import SGLANG_POLICIES, of_ours, ranks_by_plugin, turn_name
from laps_sd.serving.bench.rank_time import quantiles_us, rank_counts
from laps_sd.serving.bench.round_log import read_rounds, rounds_path
from laps_sd.serving.bench.servers import Servers, check_servers
from laps_sd.serving.bench.simulated import against_simulator
from laps_sd.serving.bench.steps import step_ratios
from laps_sd.serving.bench.turn import Turn, Turns
from laps_sd.serving.config import servable_policies
from laps_sd.serving.cpu.model import demo_model
from laps_sd.serving.process.speculation import Speculation

#: Told what happens: (sentence, share of the whole that is done, 0 to 1).
OnStage = Callable[[str, float], None]
#: Number of the calibration among the turns.
CALIBRATION = -1


@dataclass(frozen=True, slots=True)
class Repeats:
    """How often every policy has its turn.

    Attributes
    ----------
    rounds : int
        At least so often.
    most : int or None
        At most so often, where a width is to be reached.
    width : float or None
        Go on until the 95 % interval of the ratio of mean latencies to the first policy is narrower than this for all.
    """

    rounds: int = 1
    most: int | None = None
    width: float | None = None

    def enough(self, done: int, ratios: Callable[[], Json], first: str) -> bool:
        """Whether no further round is needed after ``done`` of them; ``ratios`` is asked where a width decides."""
        if done < self.rounds:
            return False
        if self.width is None or done >= (self.most or self.rounds):
            return True
        compared = [by_other[first] for by_other in ratios().values() if first in by_other]
        means = [(found["latency_rounds"] or found["latency_s"] or {}).get("mean") for found in compared]
        return all(mean is not None and mean["high"] - mean["low"] < self.width for mean in means)


def run_bench(
    *,
    policies: Sequence[str],
    prompts: Sequence[Prompt | str],
    bundle: Path | str | None,
    out_dir: Path,
    max_new_tokens: int,
    model: Path | str | None = None,
    draft: Speculation = "ngram",
    draft_model: Path | None = None,
    max_running: int = 4,
    rate: float | None = None,
    arrivals: Arrivals | None = None,
    warm_up: int = 0,
    cpu: bool = True,
    seed: int = 0,
    rounds: int = 1,
    until_width: float | None = None,
    max_rounds: int | None = None,
    resume: bool = False,
    server_args: Sequence[str] = (),
    config: Mapping[str, object] | None = None,
    progress: OnStage | None = None,
) -> Json:
    """Compare policies on servers that are started for it, one at a time, each fresh.

    Parameters
    ----------
    policies : sequence of str
        SGLang's own names and those that ``policy.name`` may have, in the order in which they take turns; the next
        round goes backwards.
    prompts : sequence of Prompt or str
        What to ask; the chat template is applied where the model has one. Decoding is greedy.
    out_dir : Path
        Receives one line per request (``requests.jsonl``), the turns, the logs of rounds and the servers' logs.
    rate : float or None
        Poisson arrivals per second; None: all at once. ``arrivals`` says more.
    arrivals : Arrivals, optional
        How requests arrive; each round draws its own times.
    warm_up : int
        So many requests of each turn, those sent first, are left out of the figures.
    rounds, until_width, max_rounds : int, float or None, int or None
        See `Repeats`.
    resume : bool
        Go on with the turns that an earlier run of the same options left in ``out_dir``.
    bundle, model, draft, draft_model, max_running, cpu, server_args, config
        See `Servers`.

    Returns
    -------
    dict
        The JSON of ``laps-sd bench``, and ``identical_tokens``: whether every request got the same token
        ids under every policy in every round (None when fewer than two runs answered it).

    Raises
    ------
    InputError
        An unknown policy, no prompts, a bundle that cannot be read, turns of another comparison to go on with.
    WorkError
        A server did not start, died, or answered nothing.
    """
    check_usage(policies, prompts, max_running=max_running, rounds=rounds, rate=rate, warm_up=warm_up)
    check_servers(model, draft, draft_model, cpu=cpu)
    arrivals = arrivals or of_rate(rate)
    if arrivals.pattern == "trace" and arrivals.clock == "rounds":
        raise InputError("a trace has its times in seconds; leave --clock rounds out, or give a load")
    requests = workload(prompts, demo_model() if model is None else model, max_new_tokens, cpu)
    out_dir.mkdir(parents=True, exist_ok=True)
    servers = Servers(
        out_dir, bundle, model, draft, draft_model, max_running, cpu, server_args, config
    )  # fmt: skip
    plan = {
        "requests": sha256(repr(requests).encode()).hexdigest(), "arrivals": asdict(arrivals), "seed": seed,
        "slots": max_running, "draft": draft, "draft_model": draft_model and str(draft_model),
        "model": model and str(model), "bundle": bundle and str(bundle), "server_args": list(server_args),
        "config": dict(config or {}), "cpu": cpu,
    }  # fmt: skip
    kept = Turns(out_dir / "turns", plan, resume=resume)
    repeats = Repeats(rounds, max_rounds, until_width)
    comparison = _Comparison(servers, requests, arrivals, seed, kept, progress)
    turns = comparison.run(policies, repeats, warm_up)
    write_requests(out_dir / "requests.jsonl", turns)
    measured = [turn.after(warm_up) for turn in turns]
    done = 1 + max(turn.round for turn in turns)
    return {
        "workload": {
            "n": len(requests), "slots": max_running, "load": arrivals.load, "seed": seed,
            "rate": comparison.rate(arrivals), "draft": draft, "model": None if model is None else str(model),
            "max_new_tokens": max_new_tokens, "rounds": done, "cpu": cpu, "warm_up": warm_up,
            **arrivals.described(), "capacity": None if comparison.capacity is None else asdict(comparison.capacity),
        },
        "policies": {name: summary_of([t for t in measured if t.policy == name]) for name in dict.fromkeys(policies)},
        "ratios": ratios_of(measured, policies),
        "steps": step_ratios(turns, policies, max_running),
        "simulated": against_simulator(turns, max_running),
        **compare_tokens(turns),
    }  # fmt: skip


def _ratios_after(turns: Sequence[Turn], warm_up: int, policies: Sequence[str]) -> Json:
    return ratios_of([turn.after(warm_up) for turn in turns], policies)


class _Comparison:
    """The turns of all policies, one after the other."""

    def __init__(
        self,
        servers: Servers,
        requests: Sequence[LoadRequest],
        arrivals: Arrivals,
        seed: int,
        kept: Turns,
        progress: OnStage | None,
    ) -> None:
        self._servers, self._requests, self._arrivals, self._seed = servers, requests, arrivals, seed
        self._kept, self._progress = kept, progress
        self.capacity: Capacity | None = None

    def run(self, policies: Sequence[str], repeats: Repeats, warm_up: int) -> list[Turn]:
        if self._arrivals.load is not None:
            self.capacity = self._calibrate()
        turns: list[Turn] = []
        most = max(repeats.rounds, repeats.most or 0)
        for number in range(most):
            for place, policy in enumerate(policies if number % 2 == 0 else reversed(policies)):
                index = number * len(policies) + place
                label = f"{policy}, round {number + 1} of {most}"
                tell = teller(self._progress, label, index, most * len(policies))
                turns.append(self._kept.get(policy, number) or self._turn(policy, number, tell))
            # Thousands of draws for each pair of policies: only where a width is to be reached.
            ratios = partial(_ratios_after, turns, warm_up, policies)
            if repeats.enough(number + 1, ratios, policies[0]):
                break
        return turns

    def rate(self, arrivals: Arrivals) -> float | None:
        """Return the requests per unit of the clock; None where they have no rate."""
        capacity = self._per_unit()
        return arrivals.rate if arrivals.load is None or capacity is None else arrivals.load * capacity

    def _per_unit(self) -> float | None:
        if self.capacity is None:
            return None
        return self.capacity.per_second if self._arrivals.clock == "seconds" else self.capacity.per_round

    def _turn(self, policy: str, number: int, tell: OnStage) -> Turn:
        times = self._arrivals.at(len(self._requests), self._seed + number, self._per_unit())
        turn = self._serve(policy, number, turn_name(policy, number), at_times(self._requests, times), tell)
        self._kept.keep(turn)
        return turn

    def _calibrate(self) -> Capacity:
        """Send all requests at once to fcfs, and see what the slots can do."""
        turn = self._kept.get("fcfs", CALIBRATION)
        if turn is None:
            tell = teller(self._progress, "measuring the capacity", 0, 1)
            turn = self._serve("fcfs", CALIBRATION, "calibration", self._requests, tell, burst=True)
            self._kept.keep(turn)
        assert turn.log is not None
        return capacity_of(turn.results, read_rounds(turn.log), self._servers.slots)

    def _serve(
        self,
        policy: str,
        number: int,
        name: str,
        requests: Sequence[LoadRequest],
        tell: OnStage,
        *,
        burst: bool = False,
    ) -> Turn:
        rounds_log = rounds_path(self._servers.out_dir, name)
        rounds_log.unlink(missing_ok=True)
        tell("starting the server", 0.0)
        with self._servers.serve(policy, name, rounds_log) as server:
            server.wait_ready()
            turn = take_turn(
                server.url, policy, number, requests, tell, plugin=ranks_by_plugin(policy),
                clients=None if burst else self._arrivals.senders,
                rounds_log=rounds_log if self._arrivals.clock == "rounds" and not burst else None,
            )  # fmt: skip
            server.raise_if_dead()
        return replace(turn, log=rounds_log if rounds_log.exists() else None)


def check_usage(
    policies: Sequence[str],
    prompts: Sequence[Prompt | str],
    *,
    max_running: int = 1,
    rounds: int = 1,
    rate: float | None = None,
    warm_up: int = 0,
) -> None:
    """Raise :class:`InputError` for an unknown policy, no prompts or a number out of bounds."""
    known = dict.fromkeys([*SGLANG_POLICIES, *servable_policies()])
    unknown = [policy for policy in policies if policy not in known and of_ours(policy) not in servable_policies()]
    if unknown or not policies:
        raise InputError(f"unknown policy {' '.join(unknown) or '(none)'}; a server knows {', '.join(known)}")
    if len(set(policies)) < len(policies):
        raise InputError("a policy is named twice; rounds say how often each has its turn")
    if not prompts:
        raise InputError("there are no prompts to send")
    if max_running < 1 or rounds < 1 or (rate is not None and rate <= 0):
        raise InputError("slots and rounds must be at least 1 and the rate positive")
    if not 0 <= warm_up < len(prompts):
        raise InputError(f"{warm_up} requests to warm up with leave none of {len(prompts)} to measure")


def take_turn(
    url: str,
    policy: str,
    number: int,
    requests: Sequence[LoadRequest],
    tell: OnStage,
    *,
    plugin: bool,
    api_key: str | None = None,
    clients: int | None = None,
    rounds_log: Path | None = None,
) -> Turn:
    """Send the requests and return what came back; WorkError where nothing did.

    With ``plugin`` the server's rankings are timed from its metrics.
    """
    tell(f"0 of {len(requests)} requests answered", 0.2)
    before = rank_counts(url, api_key) if plugin else {}
    results = send_load(
        url,
        requests,
        clients=clients,
        rounds_log=rounds_log,
        api_key=api_key,
        progress=lambda done, n: tell(f"{done} of {n} requests answered", 0.2 + 0.8 * done / n),
    )
    if all(result.finish_s is None for result in results):
        raise WorkError(f"no request succeeded under {policy}; the first failure was: {results[0].error}")
    rank_us = quantiles_us(rank_counts(url, api_key), since=before) if plugin else None
    return Turn(policy, number, results, rank_us)


def teller(progress: OnStage | None, label: str, index: int, count: int) -> OnStage:
    """Return what a turn tells of its own share to, the ``index``-th of ``count``."""

    def tell(what: str, share: float) -> None:
        if progress is not None:
            progress(f"{label}: {what}", (index + share) / count)

    return tell
