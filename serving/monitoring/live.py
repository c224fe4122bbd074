"""What a running server tells of itself right now, from its ``/server_info`` and ``/metrics``."""

from collections.abc import Mapping
from math import isfinite
from typing import Final

import httpx

from laps_sd.data.collection.server import access, address_of, server_info
from laps_sd.errors import InputError, WorkError
from laps_sd.serving.monitoring.served import said_in
from laps_sd.serving.process.exposition import samples_of

Json = dict[str, object]

#: Series by name; each has values by the texts of its labels, in the order of their names.
Series = Mapping[str, Mapping[tuple[str, ...], float]]

_PHASES: Final = ("waiting", "running")
_UNITS: Final = ("tokens", "steps", "seconds")


def look(url: str, api_key: str | None = None) -> Json:
    """Ask a server what it does now.

    Parameters
    ----------
    url : str
        Base address.
    api_key : str, optional
        Sent as bearer token.

    Returns
    -------
    dict
        JSON values; null is what the server does not know (yet), or what nobody has counted.

    Raises
    ------
    InputError
        ``url`` is no address, laps-sd does not rank there, or the server exports no metrics.
    WorkError
        Nothing answers, or no SGLang server does.
    """
    url = url.rstrip("/")
    info = server_info(url, api_key, needs=("model_path", "schedule_policy"))
    replicas = said_in(info)
    if not replicas:
        raise InputError(
            f"the server at {url} schedules with {info['schedule_policy']}, without laps-sd; start it with "
            "--schedule-policy laps-sd"
        )
    told = summary(_series(url, api_key))
    failed = [str(ours["failed_hook"]) for ours in replicas if "failed_hook" in ours]
    served = {str(key): value for key, value in replicas[0].items() if key != "failed_hook"}
    return {"url": url, "served": served, "replicas": len(replicas), "failed_hook": next(iter(failed), None), **told}


def _series(url: str, api_key: str | None) -> Series:
    try:
        answer = httpx.get(f"{url}/metrics", timeout=60, **access(address_of(url), api_key))
        answer.raise_for_status()
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for name, labels, value in samples_of(answer.text):
            if name.startswith("laps_sd_"):
                texts = tuple(labels[label] for label in sorted(labels))
                found.setdefault(name, {})[texts] = value
    except httpx.HTTPStatusError:
        found = {}
    except httpx.HTTPError as error:
        raise WorkError(
            f"the server at {url} does not answer any more ({str(error) or type(error).__name__})"
        ) from None
    except ValueError:
        raise WorkError(f"what {url}/metrics says is no Prometheus text") from None
    if "laps_sd_active" not in found:
        raise InputError(f"the server at {url} exports no metrics of laps-sd; start it with --enable-metrics")
    return found


def summary(series: Series) -> Json:
    """Return what the series say, as JSON values."""
    backlog = {phase: {unit: _one(series, f"backlog_{unit}", phase) for unit in _UNITS} for phase in _PHASES}
    levels = {phase: _levels(series, phase) for phase in _PHASES}
    return {
        "active": any(value > 0 for value in series["laps_sd_active"].values()),
        "waiting": sum(levels["waiting"].values()),
        "running": sum(levels["running"].values()),
        "levels": {phase: {str(level): count for level, count in found.items()} for phase, found in levels.items()},
        "backlog": backlog,
        "order_gain": {unit: _one(series, f"order_gain_{unit}") for unit in ("steps", "seconds")},
        "trust": _one(series, "prediction_trust"),
        "perceptible_share": _one(series, "perceptible_share"),
        "preemptions": _by_label(series, "preemptions_total"),
        "recomputed_tokens": _count(series, "recomputed_tokens_total"),
        "refinements": _count(series, "refinements_total"),
        "length_log_error": _mean(series, "length_log_error"),
        "accept_length_relative_error": _mean(series, "accept_length_relative_error"),
        "predicted": _count(series, "prediction_seconds_count"),
        "unpredicted": _by_label(series, "unpredicted_requests_total"),
        "rejected_hints": _by_label(series, "rejected_hints_total"),
        "unrecorded": _count(series, "unrecorded_requests_total"),
        "fallbacks": _by_label(series, "fallbacks_total"),
    }


def _levels(series: Series, phase: str) -> dict[int, int]:
    """Requests of a phase by level, the highest level first."""
    found = series.get("laps_sd_requests", {})
    return {int(level): round(n) for (level, of), n in sorted(found.items(), key=lambda i: int(i[0][0])) if of == phase}


def _one(series: Series, name: str, *labels: str) -> float | None:
    value = series.get(f"laps_sd_{name}", {}).get(labels)
    return value if value is not None and isfinite(value) else None


def _by_label(series: Series, name: str) -> dict[str, int]:
    return {label: round(n) for (label,), n in series.get(f"laps_sd_{name}", {}).items()}


def _count(series: Series, name: str) -> int:
    return round(sum(series.get(f"laps_sd_{name}", {}).values()))


def _mean(series: Series, name: str) -> float | None:
    """Mean of a histogram since the server's start; None where it is empty."""
    count = _count(series, f"{name}_count")
    return sum(series[f"laps_sd_{name}_sum"].values()) / count if count else None
