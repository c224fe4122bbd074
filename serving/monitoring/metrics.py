"""Our series in SGLang's ``/metrics``, all with the prefix ``laps_sd_``.

``prometheus_client`` decides where samples go when it is first imported: before SGLang has set its folder for several
processes they would stay in one process and never show. Plugins load before that, so it is imported here on first use.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, wraps
from math import log, nan
from time import monotonic
from typing import TYPE_CHECKING, ParamSpec

from laps_sd.scheduler import CostModel, Policy, RequestState
from laps_sd.serving.failure_log import FailureLog
from laps_sd.serving.monitoring.backlog import backlog_of, order_gain
from laps_sd.serving.monitoring.passing_series import PassingSeries
from laps_sd.serving.monitoring.served import Served

if TYPE_CHECKING:
    from prometheus_client import Counter as CounterSeries

_RANK_BUCKETS = (5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2)
_PREDICTION_BUCKETS = (2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5)
_LOG_ERROR_BUCKETS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0)
_RELATIVE_ERROR_BUCKETS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0)
_GAUGES_EVERY_S = 1.0
#: What a request does that has not ended.
PHASES = ("waiting", "running")


_P = ParamSpec("_P")
_failures = FailureLog(logging.getLogger(__name__), "metrics are incomplete")


def harmless(method: Callable[_P, None]) -> Callable[_P, None]:
    """Let nothing out of ``method``: one rank of several counts, and must not fail where the others do not."""

    @wraps(method)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            method(*args, **kwargs)
        except Exception as error:  # no room for the files that prometheus_client keeps
            _failures.note(error)

    return run


@cache
def _fallbacks() -> "CounterSeries":
    from prometheus_client import Counter as CounterSeries

    return CounterSeries("laps_sd_fallbacks", "Hooks that failed; the server schedules with fcfs since.", ["hook"])


class SchedulerMetrics:
    """What one scheduler process counts; one per data-parallel replica writes.

    Parameters
    ----------
    policy : str
        Which policy ranks.
    served : Served, optional
        What it ranks with.
    """

    def __init__(self, policy: str, served: Served | None = None) -> None:
        from prometheus_client import Counter as CounterSeries
        from prometheus_client import Gauge, Histogram

        # Several replicas: requests add up, shares are the last one told.
        active = "1 while laps-sd ranks requests, by the policy that does."
        self._active = Gauge("laps_sd_active", active, ["policy"], multiprocess_mode="livemax")
        self._requests = PassingSeries("laps_sd_requests", "Requests by phase and queue level.", ["phase", "level"])
        what = "Work of waiting and running requests that is left by prediction"
        self._backlog = {
            unit: Gauge(f"laps_sd_backlog_{unit}", f"{what}, in {unit}.", ["phase"], multiprocess_mode="livesum")
            for unit in ("tokens", "steps", "seconds")
        }
        what = "Mean wait that the order saves those who wait now, against first come, first served; predicted"
        self._gain = {
            unit: Gauge(f"laps_sd_order_gain_{unit}", f"{what}, in {unit}.", multiprocess_mode="livemostrecent")
            for unit in ("steps", "seconds")
        }
        self._perceptible = Gauge(
            "laps_sd_perceptible_share",
            "Share of the requests that were decoded whose acceptance posterior is stable; NaN: there is none.",
            multiprocess_mode="livemostrecent",
        )
        self._trust = Gauge(
            "laps_sd_prediction_trust",
            "How far predictions are believed, 0 to 1, from how they did on finished requests.",
            multiprocess_mode="livemostrecent",
        )
        self._preemptions = CounterSeries(
            "laps_sd_preemptions", "Requests that lost their slot, by reason.", ["reason"]
        )
        self._recomputed = CounterSeries("laps_sd_recomputed_tokens", "Tokens computed again after preemptions.")
        self._rank = Histogram("laps_sd_rank_seconds", "Seconds that one ranking took.", buckets=_RANK_BUCKETS)
        self._refined = CounterSeries("laps_sd_refinements", "Lengths corrected by what an answer had said so far.")
        self._refined_error = Histogram(
            "laps_sd_refined_length_log_error",
            "|ln(median of the refined length / real output tokens)| of requests that ended by themselves, by tokens "
            "read.",
            ["tokens"],
            buckets=_LOG_ERROR_BUCKETS,
        )
        self._next_gauges = 0.0
        self._policy = policy
        self._active.labels(policy).set(1)
        if served is not None:
            info = Gauge("laps_sd_info", "1: what ranks here.", list(served.labels()), multiprocess_mode="livemax")
            info.labels(**served.labels()).set(1)

    @harmless
    def fell_back(self, hook: str) -> None:
        """Our hook of this name failed, and SGLang schedules by itself from now on."""
        self._active.labels(self._policy).set(0)
        _fallbacks().labels(hook).inc()
        self._requests.set({})
        for gauge in self._backlog.values():
            for phase in PHASES:
                gauge.labels(phase).set(nan)
        for gauge in self._gain.values():
            gauge.set(nan)

    @harmless
    def ranked(self, seconds: float) -> None:
        """Observe how long one ranking took."""
        self._rank.observe(seconds)

    @harmless
    def refined(self, count: int) -> None:
        """Count so many lengths that were corrected in flight."""
        self._refined.inc(count)

    @harmless
    def refined_errors(self, state: RequestState) -> None:
        """Observe how far off each refined length of a request was that has ended by itself."""
        for refined in state.refinements:
            if state.generated > refined.at:
                median = refined.at + refined.curve.quantile(0.5, refined.at)
                self._refined_error.labels(str(refined.at)).observe(abs(log(median / state.generated)))

    @harmless
    def preempted(self, reason: str) -> None:
        """Count a request that lost its slot: ``slots``, ``kv`` or ``retraction``."""
        self._preemptions.labels(reason).inc()

    @harmless
    def recomputed(self, tokens: int) -> None:
        """Count so many tokens of a preempted request that came back and were not in the cache."""
        self._recomputed.inc(tokens)

    def due(self) -> bool:
        """Whether it is time to show the gauges; they never enter a rank, so a clock may decide."""
        return monotonic() >= self._next_gauges

    @harmless
    def show(self, phases: Mapping[str, Sequence[RequestState]], policy: Policy, cost: CostModel | None = None) -> None:
        """Set the gauges from the requests of every phase (``waiting``, ``running``) and from the policy.

        Parameters
        ----------
        cost : CostModel, optional
            What steps and prefills cost; None: not known, and neither is the backlog in seconds.
        """
        self._next_gauges = monotonic() + _GAUGES_EVERY_S
        levels = {phase: Counter(state.queue for state in states) for phase, states in phases.items()}
        self._requests.set({(p, str(queue)): count for p, some in levels.items() for queue, count in some.items()})
        # Of whom no step was seen nothing can be known: a burst of new requests is no change of what is known.
        decoded = [state for states in phases.values() for state in states if state.steps]
        stable = sum(policy.perceptible(state) for state in decoded)
        self._perceptible.set(stable / len(decoded) if decoded else nan)
        together = min(policy.prefill.slots, sum(map(len, phases.values())))
        for phase, states in phases.items():
            left = backlog_of(states, policy)
            self._backlog["tokens"].labels(phase).set(left.tokens)
            self._backlog["steps"].labels(phase).set(left.steps)
            self._backlog["seconds"].labels(phase).set(nan if cost is None else left.seconds(cost, together))
        gain = order_gain(phases.get("waiting", ()), policy, together)
        self._gain["steps"].set(gain)
        self._gain["seconds"].set(nan if cost is None else gain * cost.tau(max(together, 1)))
        if policy.trust is not None:
            self._trust.set(policy.trust)


class TokenizerMetrics:
    """What the tokenizer process counts."""

    def __init__(self) -> None:
        from prometheus_client import Counter as CounterSeries
        from prometheus_client import Histogram

        self._prediction = Histogram(
            "laps_sd_prediction_seconds", "Seconds that one prediction took.", buckets=_PREDICTION_BUCKETS
        )
        self._unpredicted = CounterSeries("laps_sd_unpredicted_requests", "Requests without a prediction.", ["reason"])
        self._hints = CounterSeries("laps_sd_rejected_hints", "Client hints that were not believable.", ["reason"])
        self._length_error = Histogram(
            "laps_sd_length_log_error",
            "|ln(median prediction / real output tokens)| of requests without a length hint that ended by themselves.",
            buckets=_LOG_ERROR_BUCKETS,
        )
        self._accept_error = Histogram(
            "laps_sd_accept_length_relative_error",
            "|predicted - observed| / observed tokens per verify step, requests with at least 8 steps.",
            buckets=_RELATIVE_ERROR_BUCKETS,
        )
        self._dropped = CounterSeries(
            "laps_sd_unrecorded_requests", "Finished requests that are missing in the record."
        )

    @harmless
    def fell_back(self, hook: str) -> None:
        """Our hook of this name failed, and nothing is predicted from now on."""
        _fallbacks().labels(hook).inc()

    @harmless
    def predicted(self, seconds: float) -> None:
        """Observe how long one prediction took."""
        self._prediction.observe(seconds)

    @harmless
    def unpredicted(self, reason: str) -> None:
        """Count a request that goes without a prediction."""
        self._unpredicted.labels(reason).inc()

    @harmless
    def rejected_hints(self, reasons: Iterable[str]) -> None:
        """Count hints of a client that were not believable, by the reason for each."""
        for reason in reasons:
            self._hints.labels(reason).inc()

    @harmless
    def unrecorded(self, count: int) -> None:
        """Count finished requests that were not recorded."""
        self._dropped.inc(count)

    @harmless
    def length_error(self, predicted: float, real: int) -> None:
        """Observe the error on a request that ended by itself after ``real`` tokens."""
        self._length_error.observe(abs(log(max(predicted, 1.0) / max(real, 1))))

    @harmless
    def accept_error(self, predicted: float, observed: float) -> None:
        """Observe the error on a request that ended with ``observed`` tokens per verify step."""
        self._accept_error.observe(abs(predicted - observed) / observed)
