"""``laps-sd simulate``: replay a trace through scheduling policies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laps_sd.errors import InputError
from laps_sd.extensions import POLICIES, did_you_mean

if TYPE_CHECKING:
    from laps_sd.simulation.run import Results

DEFAULT_POLICIES = "fcfs,hrrn,sjf-predicted,las,mlfq,gittins,laps-sd,oracle-srpt"


#: What a report sweeps unless told otherwise.
REPORT_SWEEP = "0.5,0.7,0.8,0.9,1.0,1.1"
#: Beyond these a count is a slip of the finger: it overflows a float, or is never replayed to the end.
_MOST, _MOST_REPLAYED, _MOST_SEEDS = 2**40, 10**7, 10**4


def register(app: typer.Typer) -> None:
    """Add the verb ``simulate``."""
    app.command("simulate")(simulate)


def simulate(
    trace: Annotated[Path, typer.Option(help="Request records: Parquet or JSON lines.")],
    bundle: Annotated[str | None, typer.Option(help="Predictors: a folder, or models:/NAME@ALIAS.")] = None,
    policies: Annotated[
        str,
        typer.Option(
            help=f"Comma-separated, of {', '.join(POLICIES.names())}; also laps-sd:PRESET: paper, length-only, "
            "acceptance-only, unseeded, no-posterior, remaining, no-trust, no-preemption. "
            f"[default: {DEFAULT_POLICIES.replace(',', ', ')}]",
            show_default=False,
        ),
    ] = DEFAULT_POLICIES,
    slots: Annotated[int, typer.Option(min=1, max=_MOST, help="Requests that run together at most.")] = 16,
    load: Annotated[
        float | None,
        typer.Option(
            help="Offered work as a share of what the slots can do; rescales the arrivals. [default: the trace's own "
            "arrivals, or 0.9 if it has none]"
        ),
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Requests per second, drawn at random, instead of a load.")] = None,
    burstiness: Annotated[
        float, typer.Option(min=0, help="Coefficient of variation of drawn gaps between arrivals; 1 is Poisson.")
    ] = 1.0,
    kv_tokens: Annotated[
        int | None,
        typer.Option("--kv-tokens", min=1, max=_MOST, help="KV-cache capacity in tokens. [default: never short]"),
    ] = None,
    drop_kv: Annotated[
        bool, typer.Option("--drop-kv", help="A preempted request keeps only its prompt in the cache.")
    ] = False,
    chunk_tokens: Annotated[
        int, typer.Option(min=1, max=_MOST, help="Most tokens that one prefill iteration computes.")
    ] = 8192,
    cost_model: Annotated[
        str,
        typer.Option(
            "--cost-model",
            help="JSON file of --fit-cost-model; unit: a step costs 1, all else 0; gpu-small, gpu-large, gpu: from "
            "published figures; cpu: fitted to the built-in trace (docs/simulator.md).",
        ),
    ] = "unit",
    predictions: Annotated[
        str | None,
        typer.Option(
            help="bundle; oof: out-of-fold, trained on the trace itself; FILE: JSON lines with request_id and a "
            "prediction; noise:S: true lengths times lognormal noise, S the standard deviation of the log (0.6: "
            "Kendall tau about 0.6 to 0.7); shuffled or reversed: those of the wrong requests, also of a named source "
            "(shuffled:noise:0.6); none. [default: bundle if one is given, oof if there are prompts, else none]"
        ),
    ] = None,
    refine: Annotated[
        str | None,
        typer.Option(
            help="What corrects lengths while requests run. recorded: what the records say of their answers; noise: as "
            "exact as was measured; noise:64=0.5,256=0.3: after so many tokens a standard deviation of the log length; "
            "none. [default: recorded where records and predictions allow it, else none]"
        ),
    ] = None,
    acceptance_from: Annotated[
        Path | None,
        typer.Option(help="Trace whose accept lengths are lent to requests that have none (else 1 token per step)."),
    ] = None,
    requests: Annotated[
        int | None, typer.Option(min=1, max=_MOST_REPLAYED, help="Requests per replay. [default: all]")
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, max=_MOST_SEEDS, help="Replays to average, each with its own draws.")
    ] = 3,
    seed: Annotated[int, typer.Option(min=0, help="First seed.")] = 0,
    sweep: Annotated[
        str | None,
        typer.Option(help="Also these loads, comma-separated, or none. [default: none; with --report 0.5 to 1.1]"),
    ] = None,
    ablation: Annotated[
        bool, typer.Option("--ablation", help="Also every preset of laps-sd: what each part adds (--report does).")
    ] = (False),
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A constant of laps-sd; repeatable.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes. [default: one per core]")] = None,
    fit_cost_model: Annotated[
        Path | None,
        typer.Option("--fit-cost-model", help="Fit the cost model to the timings of the trace, write it and stop."),
    ] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write the results as JSON.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report.")] = None,
) -> None:
    """Replay a trace through scheduling policies on a simulated machine, verify step by verify step.

    Simulated seconds come from the cost model. Requests that were cut or aborted are left out. With --load a trace
    with arrivals keeps their pattern; a trace without any, and every --rate, gets random arrivals.
    """
    from laps_sd.commands._console import counted
    from laps_sd.files import check_outputs, write_json
    from laps_sd.simulation.options import fit
    from laps_sd.simulation.run import Plan, run

    check_outputs((fit_cost_model, json_out, report), (trace, acceptance_from, cost_model, _source(predictions)))
    if fit_cost_model is not None:
        typer.echo(fit(trace, fit_cost_model))
        return
    for name, value in (("load", load), ("rate", rate), ("burstiness", burstiness)):
        _check_number(name, value)
    if load is not None and rate is not None:
        raise InputError("give --load or --rate, not both")
    plan = Plan(
        trace=trace,
        bundle=bundle,
        policies=_names(policies),
        slots=slots,
        load=load,
        rate=rate,
        burstiness=burstiness,
        kv_tokens=kv_tokens,
        keep_kv=not drop_kv,
        chunk_tokens=chunk_tokens,
        cost_model=cost_model,
        predictions=predictions,
        refine=refine,
        acceptance_from=acceptance_from,
        requests=requests,
        seeds=tuple(range(seed, seed + seeds)),
        sweep=_loads(sweep if sweep is not None or report is None else REPORT_SWEEP),
        ablation=ablation or report is not None,
        settings=tuple(setting or ()),
        workers=workers,
    )
    with counted("replays", plan.replays) as advance:
        results = run(plan, advance)
    _show(results)
    if json_out is not None:
        write_json(json_out, results.to_json())
    if report is not None:
        from laps_sd.report.simulation import write_report

        write_report(report, results)


def _show(results: Results) -> None:
    """Print the tables."""
    from rich.console import Console

    from laps_sd.report.comparison import policy_table

    console = Console(markup=False)
    facts = results.workload
    tau = facts["predictions_kendall_tau"]
    load = "unknown" if facts["load"] is None else f"{facts['load']:.2f}"
    console.print(
        f"{facts['n']} requests{_over(facts)}, {facts['seeds']} seed(s), {facts['slots']} slots, load {load}, "
        f"predictions {facts['predictions']}{'' if tau is None else f' (Kendall tau {tau:.2f})'}, {_left_out(facts)}"
    )
    if (question := _sparse(facts)) is not None:
        console.print(question)
    console.print(policy_table(results.policies, "Policies"))
    if results.ablation:
        console.print(policy_table(results.ablation, "Ablation of laps-sd"))
    for at_load, table in sorted(results.sweep.items()):
        console.print(policy_table(table, f"At load {at_load:g}"))


def _over(facts: Mapping[str, Any]) -> str:
    from laps_sd.data.importers.arrivals import in_words

    return "" if facts["span_s"] is None else f" over {in_words(facts['span_s'])}"


def _left_out(facts: Mapping[str, Any]) -> str:
    """Say how many requests of the trace are not replayed, and why."""
    aborted = facts["aborted_left_out"]
    why = {
        "cut at a limit": facts["censored_left_out"] - aborted,
        "aborted": aborted,
        "without a token of output": facts["empty_left_out"],
    }
    told = [f"{count} {reason}" for reason, count in why.items() if count]
    return f"left out: {', '.join(told) or 'none'}"


#: Below this load a request hardly ever meets another.
_SPARSE = 0.01


def _sparse(facts: Mapping[str, Any]) -> str | None:
    """Ask whether the times are in seconds, where so few requests came that no policy can matter."""
    from laps_sd.data.importers.arrivals import in_words

    if facts["span_s"] is None or facts["load"] is None or facts["load"] >= _SPARSE:
        return None
    return (
        f"The arrivals span {in_words(facts['span_s'])} at a load of {facts['load']:.2g}: hardly any request waits. "
        "Are they in seconds? Import them with --time-unit if not, or give --load to bring them closer together."
    )


#: Beyond these a load, a rate or a burstiness is a slip of the finger, and arrival times overflow.
_SMALLEST, _LARGEST = 1e-6, 1e6


def _check_number(name: str, value: float | None) -> None:
    if value is None or (name == "burstiness" and value == 0):
        return
    if not _SMALLEST <= value <= _LARGEST:  # also not a number
        allowed = f"0 to {_LARGEST:g}, {_SMALLEST:g} being the least but 0" if name == "burstiness" else None
        raise InputError(f"--{name} {value:g}: expected a number from {allowed or f'{_SMALLEST:g} to {_LARGEST:g}'}")


def _source(predictions: str | None) -> str | None:
    """Return what ``--predictions`` reads from, if that is a file: it may stand behind the word that corrupts it."""
    return None if predictions is None else predictions.removeprefix("shuffled:").removeprefix("reversed:")


def _names(text: str) -> tuple[str, ...]:
    from laps_sd.scheduler.policies.catalogue import policy_names

    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in policy_names()]
    if unknown or not names:
        hint = did_you_mean(unknown[0], policy_names()) if unknown else ""
        raise InputError(
            f"--policies {text}: unknown {', '.join(unknown) or '(none)'}; {hint}known: {', '.join(policy_names())}"
        )
    return names


def _loads(text: str | None) -> tuple[float, ...]:
    if text is None or text == "none":
        return ()
    try:
        loads = tuple(float(part) for part in text.split(","))
    except ValueError:
        loads = (-1.0,)
    if any(not _SMALLEST <= load <= _LARGEST for load in loads):
        raise InputError(f"--sweep {text}: expected positive loads, comma-separated, such as 0.5,0.7,0.9")
    return loads
