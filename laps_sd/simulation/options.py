"""Cost models and settings from the command line, and the fitting of a cost model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laps_sd.errors import InputError
from laps_sd.files import write_json
from laps_sd.scheduler.cost_fit import Timing, fit_cost_model
from laps_sd.scheduler.service import COST_MODELS, CostModel
from laps_sd.scheduler.settings import Settings

if TYPE_CHECKING:
    from laps_sd.data import RequestRecord


_KNOWN = ", ".join(("unit", *COST_MODELS))


def read_cost_model(text: str) -> CostModel:
    """Read ``--cost-model``: ``unit``, a name of `COST_MODELS`, or what `fit` wrote."""
    if text == "unit":
        return CostModel.unit()
    if text in COST_MODELS:
        return COST_MODELS[text]
    path = Path(text)
    try:
        return CostModel.from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(
            f"--cost-model {text}: no such file; write one with --fit-cost-model, or say one of {_KNOWN}"
        ) from error
    except OSError as error:
        raise InputError(f"--cost-model {text}: cannot be read ({error.strerror}); name a file, or say unit") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"--cost-model {text}: not a cost model: {error}") from error


def read_settings(assignments: Sequence[str]) -> Settings | None:
    """Read the ``--set NAME=VALUE`` options; None when there are none."""
    if not assignments:
        return None
    kinds = {f.name: type(getattr(Settings(), f.name)) for f in fields(Settings) if f.name != "posterior"}
    changes: dict[str, Any] = {}
    for assignment in assignments:
        name, _, text = assignment.partition("=")
        if name not in kinds:
            raise InputError(f"--set {assignment}: laps-sd has no such setting; known: {', '.join(sorted(kinds))}")
        try:
            changes[name] = _value(kinds[name], text)
        except (ValueError, OverflowError) as error:
            raise InputError(f"--set {assignment}: expected {kinds[name].__name__}") from error
    try:
        return replace(Settings(), **changes)
    except ValueError as error:
        raise InputError(f"--set: {error}") from error


def _value(kind: type, text: str) -> Any:
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError
        return text.lower() == "true"
    return kind(text)


def fit(trace: Path, out: Path) -> str:
    """Fit a cost model to the timings of a trace, write it, and return in a sentence what it says."""
    from laps_sd.data import read_records

    timed = [r for r in read_records(trace) if r.ttft_s is not None and r.e2e_s is not None and r.output_tokens > 1]
    try:
        found = fit_cost_model(
            [_timing(r, r.verify_steps) for r in timed if r.verify_steps],
            plain=[_timing(r, r.output_tokens - 1) for r in timed if not r.verify_steps and r.draft is None],
        )
    except ValueError as error:
        raise InputError(f"{trace}: {error}") from error
    write_json(
        out,
        {
            "model": found.model.to_dict(),
            "fit": {f.name: getattr(found, f.name) for f in fields(found) if f.name != "model"},
        },
    )
    return (
        f"{out}: a verify step takes {found.model.tau(1) * 1e3:.1f} ms alone and "
        f"{found.model.tau(round(found.batch_max)) * 1e3:.1f} ms in a batch of {found.batch_max:.0f}; 1,000 tokens are "
        f"prefilled in {found.model.prefill(1000) * 1e3:.0f} ms (median errors {found.step_error:.0%} and "
        f"{found.prefill_error:.0%}, {found.n} requests)"
    )


def _timing(record: RequestRecord, steps: int) -> Timing:
    assert record.ttft_s is not None and record.e2e_s is not None  # noqa: PT018
    return Timing(record.prompt_tokens, steps, record.ttft_s, record.e2e_s, record.queue_s or 0.0, record.arrival_s)
