"""What happened to each request, and the figures per policy that ``simulate`` and ``bench`` print alike."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypedDict

import numpy as np

#: Where fcfs is within this share of the clairvoyant reference there is nothing to gain.
NOTHING_TO_GAIN = 0.03
#: The clairvoyant policy that gaps are given to: it knows every size, and what a preemption costs.
REFERENCE = "oracle-ride"


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """One request as a client saw it, simulated or live.

    Attributes
    ----------
    request_id : str
    arrival_s : float
        When the client sent it, in seconds on the clock of its run.
    first_token_s, finish_s : float or None
        When the first and the last token were there; None when they never were (the request failed).
    output_tokens : int
        Tokens produced.
    service_s : float or None
        Seconds that the request takes on an idle machine; None where nobody knows. Slowdown is latency over this.
    preemptions : int
        Times that it lost its slot after it had begun.
    recomputed_tokens : int
        Tokens whose KV entries had to be computed again after preemptions.
    """

    request_id: str
    arrival_s: float
    first_token_s: float | None
    finish_s: float | None
    output_tokens: int
    service_s: float | None = None
    preemptions: int = 0
    recomputed_tokens: int = 0

    @property
    def latency_s(self) -> float | None:
        """Seconds from arrival to the last token."""
        return None if self.finish_s is None else self.finish_s - self.arrival_s

    @property
    def ttft_s(self) -> float | None:
        """Seconds from arrival to the first token."""
        return None if self.first_token_s is None else self.first_token_s - self.arrival_s

    @property
    def tpot_s(self) -> float | None:
        """Seconds per output token after the first; None for answers of one token."""
        if self.finish_s is None or self.first_token_s is None or self.output_tokens < 2:
            return None
        return (self.finish_s - self.first_token_s) / (self.output_tokens - 1)

    @property
    def slowdown(self) -> float | None:
        """Latency over the service on an idle machine: 1 is perfect."""
        latency = self.latency_s
        return None if latency is None or not self.service_s else latency / self.service_s


class Spread(TypedDict):
    """Mean and percentiles of one quantity."""

    mean: float
    p50: float
    p90: float
    p99: float


class PolicySummary(TypedDict):
    """The keys that the command line promises for each policy; a part without data is None."""

    latency_s: Spread | None
    ttft_s: Spread | None
    tpot_s: Spread | None
    slowdown_mean: float | None
    preemptions: int | float
    recomputed_tokens: int | float
    finished: int | float
    failed: int | float
    throughput_tokens_s: float | None
    rank_us_p50: float | None
    rank_us_p99: float | None
    gap_closed: float | None


def summarise(outcomes: Sequence[RequestOutcome], *, rank_us: Sequence[float] = ()) -> PolicySummary:
    """Figures of one policy from what happened to its requests.

    Parameters
    ----------
    outcomes : sequence of RequestOutcome
        Every request of the run; those without ``finish_s`` count as failed.
    rank_us : sequence of float, optional
        Microseconds that each scheduling round spent in the policy.

    Returns
    -------
    PolicySummary
        Seconds and tokens; ``gap_closed`` is None until `close_gaps` compares the policies.
        Throughput counts the tokens of finished requests between the first arrival and the last finish.
    """
    done = [o for o in outcomes if o.finish_s is not None]
    slowdowns = _known(o.slowdown for o in done)
    return PolicySummary(
        latency_s=spread(_known(o.latency_s for o in done)),
        ttft_s=spread(_known(o.ttft_s for o in done)),
        tpot_s=spread(_known(o.tpot_s for o in done)),
        slowdown_mean=float(np.mean(slowdowns)) if slowdowns else None,
        preemptions=sum(o.preemptions for o in outcomes),
        recomputed_tokens=sum(o.recomputed_tokens for o in outcomes),
        finished=len(done),
        failed=len(outcomes) - len(done),
        throughput_tokens_s=_throughput(done),
        rank_us_p50=float(np.percentile(rank_us, 50)) if len(rank_us) else None,
        rank_us_p99=float(np.percentile(rank_us, 99)) if len(rank_us) else None,
        gap_closed=None,
    )


def gap_closed(mean: float, fcfs_mean: float, oracle_mean: float) -> float | None:
    """Share of the way from fcfs to the clairvoyant reference that a policy's mean latency goes.

    Returns
    -------
    float or None
        (fcfs - policy) / (fcfs - `REFERENCE`); None where fcfs is within 3 % of the reference.
    """
    gap = fcfs_mean - oracle_mean
    return None if gap <= NOTHING_TO_GAIN * oracle_mean else (fcfs_mean - mean) / gap


def close_gaps(summaries: Mapping[str, PolicySummary]) -> None:
    """Fill in ``gap_closed`` of every policy, where both ``fcfs`` and `REFERENCE` were run."""
    fcfs, oracle = (summaries[name]["latency_s"] if name in summaries else None for name in ("fcfs", REFERENCE))
    if fcfs is None or oracle is None:
        return
    for summary in summaries.values():
        if summary["latency_s"] is not None:
            summary["gap_closed"] = gap_closed(summary["latency_s"]["mean"], fcfs["mean"], oracle["mean"])


def slowdown_by_length(outcomes: Sequence[RequestOutcome], parts: int = 4) -> list[tuple[int, int, float]]:
    """Mean slowdown of the shortest to the longest answers, in equal parts by output length.

    Returns
    -------
    list of (int, int, float)
        Fewest tokens, most tokens and mean slowdown of each part; empty parts and unknown slowdowns are left out.
    """
    known = sorted((o.output_tokens, o.slowdown) for o in outcomes if o.slowdown is not None)
    bounds = np.linspace(0, len(known), parts + 1).astype(int)
    groups = [known[low:high] for low, high in pairwise(bounds) if high > low]
    return [(g[0][0], g[-1][0], float(np.mean([slowdown for _, slowdown in g]))) for g in groups]


def spread(values: Sequence[float]) -> Spread | None:
    """Mean, median, 90th and 99th percentile; None of nothing."""
    if not len(values):
        return None
    p50, p90, p99 = np.percentile(values, (50, 90, 99))
    return Spread(mean=float(np.mean(values)), p50=float(p50), p90=float(p90), p99=float(p99))


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _throughput(done: Sequence[RequestOutcome]) -> float | None:
    finishes = _known(o.finish_s for o in done)
    if not finishes:
        return None
    span = max(finishes) - min(o.arrival_s for o in done)
    return sum(o.output_tokens for o in done) / span if span > 0 else None


def average(summaries: Sequence[PolicySummary]) -> PolicySummary:
    """Mean of each figure over several runs (seeds); a figure that any run lacks is None.

    ``gap_closed`` is left None: it is the ratio of the averages, for `close_gaps` to fill in, and not the average of
    ratios, in which the seeds with little to gain would weigh most.
    """
    return PolicySummary(
        latency_s=_average_spread([s["latency_s"] for s in summaries]),
        ttft_s=_average_spread([s["ttft_s"] for s in summaries]),
        tpot_s=_average_spread([s["tpot_s"] for s in summaries]),
        slowdown_mean=_mean([s["slowdown_mean"] for s in summaries]),
        preemptions=_mean([s["preemptions"] for s in summaries]) or 0,
        recomputed_tokens=_mean([s["recomputed_tokens"] for s in summaries]) or 0,
        finished=_mean([s["finished"] for s in summaries]) or 0,
        failed=_mean([s["failed"] for s in summaries]) or 0,
        throughput_tokens_s=_mean([s["throughput_tokens_s"] for s in summaries]),
        rank_us_p50=_mean([s["rank_us_p50"] for s in summaries]),
        rank_us_p99=_mean([s["rank_us_p99"] for s in summaries]),
        gap_closed=None,
    )


def _average_spread(spreads: Sequence[Spread | None]) -> Spread | None:
    known = [s for s in spreads if s is not None]
    if not known or len(known) < len(spreads):
        return None
    mean, p50, p90, p99 = np.mean([(s["mean"], s["p50"], s["p90"], s["p99"]) for s in known], axis=0)
    return Spread(mean=float(mean), p50=float(p50), p90=float(p90), p99=float(p99))


def _mean(values: Sequence[float | None]) -> float | None:
    known = _known(values)
    if not known or len(known) < len(values):
        return None
    mean = float(np.mean(known))
    return int(mean) if all(isinstance(v, int) for v in known) and mean.is_integer() else mean
