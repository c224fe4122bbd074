"""``laps-sd bench``: policies against each other on real SGLang servers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from laps_sd.errors import InputError

if TYPE_CHECKING:
    from laps_sd.data.collection.prompt import Prompt
    from laps_sd.serving.bench.arrivals import Arrivals, Clock, Pattern


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("bench")(bench)


#: What is compared unless told otherwise.
POLICIES = "fcfs,hrrn,laps-sd"
#: Options of servers that are started here; a running one has its own.
_OF_SERVERS = (
    "bundle", "slots", "draft", "draft_model", "rounds", "gpu", "server_args", "load", "clock", "until_width",
    "max_rounds", "resume",
)  # fmt: skip


def bench(
    ctx: typer.Context,
    policies: Annotated[
        str | None,
        typer.Option(
            help="Policies in turn: SGLang's own names, and every policy that laps-sd can serve; plugin:NAME is "
            "ours where both have the name "
            f"[default: {POLICIES}; with --url what it says]."
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="Model folder to serve; with --url: whose chat template to apply [default: the demo model]."),
    ] = None,
    bundle: Annotated[
        str | None,
        typer.Option(
            help="Bundle folder or MLflow URI [default: trained here on the built-in trace, less the prompts asked]."
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            help="File of prompts: .txt, one a line; JSON lines, JSON or Parquet with prompt or messages; a trace "
            "[default: the project's own]."
        ),
    ] = None,
    requests: Annotated[int, typer.Option(help="Requests per run; of a file the first so many.", min=2)] = 32,
    rate: Annotated[
        float | None,
        typer.Option(
            help="Poisson arrivals per second, or per round with --clock rounds [default: all at once].", min=1e-6
        ),
    ] = None,
    load: Annotated[
        float | None,
        typer.Option(
            help="Poisson arrivals at this share of the capacity, which a burst under fcfs measures.", min=0.01
        ),
    ] = None,
    burstiness: Annotated[
        float,
        typer.Option(help="Coefficient of variation of the gaps: 1 is Poisson, above 1 comes in bursts.", min=0.01),
    ] = 1.0,
    arrivals: Annotated[
        Literal["burst", "poisson", "trace", "closed"] | None,
        typer.Option(
            help="All at once; Poisson; at the times of the trace that --prompts names; or a closed loop of --clients "
            "[default: poisson with --rate or --load, else burst]."
        ),
    ] = None,
    clients: Annotated[
        int | None,
        typer.Option(help="Clients of a closed loop, each with one request at a time [default: 2 x slots].", min=1),
    ] = None,
    clock: Annotated[
        Literal["seconds", "rounds"],
        typer.Option(
            help="What arrivals are timed by: seconds, or rounds of the server's scheduler, so that a machine that is "
            "slow at the moment gets the same load."
        ),
    ] = "seconds",
    warm_up: Annotated[
        int, typer.Option(help="Requests of each turn, those sent first, that are left out of the figures.", min=0)
    ] = 0,
    slots: Annotated[
        int, typer.Option(help="Requests that decode together, --max-running-requests of each server.", min=1)
    ] = 4,
    max_new_tokens: Annotated[int, typer.Option(help="Cap on every answer, tokens.", min=1)] = 256,
    draft: Annotated[
        Literal["ngram", "standalone", "none"],
        typer.Option(help="How tokens are drafted: n-grams of past text, a draft model (CPU demo model only), not."),
    ] = "ngram",
    draft_model: Annotated[
        Path | None, typer.Option(help="Draft model for standalone [default: first 24 layers of the demo model].")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Turns of every policy, A B C C B A.", min=1)] = 2,
    until_width: Annotated[
        float | None,
        typer.Option(
            help="Go on until the 95 % interval of each policy's mean latency over the first policy's is narrower.",
            min=0.001,
        ),
    ] = None,
    max_rounds: Annotated[int, typer.Option(help="With --until-width: turns of every policy at most.", min=1)] = 8,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the turns that an interrupted run of these options left in --out."),
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of prompts and arrivals.", min=0)] = 0,
    gpu: Annotated[bool, typer.Option("--gpu", help="Serve on the GPU instead of the CPU stand-in.")] = False,
    url: Annotated[
        str | None, typer.Option(help="Send one run to this running server instead and measure the policy it has.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="LAPS_SD_API_KEY", help="With --url: key of a server started with --api-key.")
    ] = None,
    server_args: Annotated[str, typer.Option(help="Further arguments for every server, as a shell reads them.")] = "",
    out: Annotated[Path, typer.Option(help="Folder for one line per request and the servers' logs.")] = Path(
        "bench-out"
    ),
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report to this file.")] = None,
    experiment: Annotated[
        str | None,
        typer.Option(help="Log an MLflow run in this experiment; the store is MLFLOW_TRACKING_URI or ./mlflow.db."),
    ] = None,
) -> int:
    """Send the same requests at the same times to every policy, each on a fresh server, and compare latencies.

    Decoding is greedy, and the token ids that the policies produce are compared: exit code 1 when they differ.
    Latencies are seconds, as a client sees them, and rounds of the server's scheduler.
    """
    from rich.console import Console

    from laps_sd.commands._console import say, sharing
    from laps_sd.files import check_folder, check_outputs, write_json
    from laps_sd.report.comparison import policy_table, ratio_table, simulated_rows, step_rows, text_table
    from laps_sd.serving.bench.names import needs_bundle
    from laps_sd.serving.bench.run import check_usage, run_bench
    from laps_sd.serving.bench.servers import check_servers
    from laps_sd.serving.bench.url import bench_url

    check_outputs((json, report), (prompts,))
    check_folder(out)
    names = [name.strip() for name in (policies or ("" if url else POLICIES)).split(",") if name.strip()]
    if url is not None:
        _refuse_unused(ctx, names)
    asked = _prompts(prompts, requests, seed)
    when = _arrivals(arrivals, rate, load, burstiness, clock, clients or 2 * slots, prompts)
    common: dict[str, Any] = {
        "prompts": asked, "out_dir": out, "max_new_tokens": max_new_tokens, "model": model, "arrivals": when,
        "warm_up": warm_up, "seed": seed,
    }  # fmt: skip
    if url is not None:
        with sharing("starting") as tell:
            result = bench_url(url, policy=names[0] if names else None, api_key=api_key, progress=tell, **common)
    else:
        check_usage(names, asked, max_running=slots, rounds=rounds, rate=rate, warm_up=warm_up)
        check_servers(model, draft, draft_model, cpu=not gpu)
        extra = _split(server_args)
        if bundle is None and model is not None and any(map(needs_bundle, names)):
            say(f"no --bundle: predictions are trained on the demo model's answers, and mislead where {model} differs")
        with sharing("starting") as tell:
            result = run_bench(
                policies=names,
                bundle=_bundle(bundle, draft, out, seed, asked) if any(map(needs_bundle, names)) else None,
                draft=draft,
                draft_model=draft_model,
                max_running=slots,
                rounds=rounds,
                until_width=until_width,
                max_rounds=max_rounds,
                resume=resume,
                cpu=not gpu,
                server_args=extra,
                progress=tell,
                **common,
            )
    console = Console(markup=False)
    if url is not None:
        console.print(_about(result), soft_wrap=True)
    console.print(policy_table(result["policies"], title="Latency in seconds, real server"))
    if len(result["policies"]) > 1:
        console.print(ratio_table(result["ratios"], title="Ratios of latencies, with 95 % intervals"))
    if any(result.get("steps", {}).values()):
        console.print(text_table(*step_rows(result), "Steps, over those of the first policy"))
    if result.get("simulated"):
        console.print(text_table(*simulated_rows(result["simulated"]), "The same requests, simulated"))
    console.print(_verdict(result))
    if json is not None:
        write_json(json, result)
    if report is not None:
        from laps_sd.report.bench import bench_report
        from laps_sd.serving.bench.figures import queues_of, read_requests

        queues = queues_of(out, result["policies"]) if url is None else None
        bench_report(result, read_requests(out), queues).write(report)
    if experiment is not None:
        from laps_sd.training.comparison import log_comparison

        written = [path for path in (json, report, out / "requests.jsonl") if path is not None]
        console.print(f"MLflow run {log_comparison(result, written, experiment)} in experiment {experiment}.")
    return 1 if result["identical_tokens"] is False else 0


def _arrivals(
    pattern: Pattern | None,
    rate: float | None,
    load: float | None,
    burstiness: float,
    clock: Clock,
    clients: int,
    prompts: Path | None,
) -> Arrivals:
    from laps_sd.serving.bench.arrivals import Arrivals, trace_times

    if pattern is None:
        pattern = "burst" if rate is None and load is None else "poisson"
    times = None
    if pattern == "trace":
        if prompts is None:
            raise InputError("--arrivals trace needs a trace: name it with --prompts")
        from laps_sd.data import read_records

        times = trace_times([record.arrival_s for record in read_records(prompts) if record.prompt is not None])
    return Arrivals(pattern, clock, rate, load, burstiness, clients, times)


def _prompts(path: Path | None, count: int, seed: int) -> list[Prompt]:
    if path is None:
        from laps_sd.data.prompts import generate_prompts

        return generate_prompts(count, seed)
    from laps_sd.data.collection.prompt_file import read_prompts

    asked = read_prompts(path)
    if len(asked) < count:
        from laps_sd.commands._console import say

        say(f"{path} holds {len(asked)} prompt{'s' if len(asked) > 1 else ''}: so many requests per run, not {count}")
    return asked[:count]


def _refuse_unused(ctx: typer.Context, names: list[str]) -> None:
    """With ``--url`` one run goes to one server: whatever concerns servers of our own would silently do nothing."""
    if len(names) > 1:
        raise InputError(
            f"--url measures the one policy of that server, not {', '.join(names)}; drop --policies, or drop --url to "
            "have a server started for each"
        )
    given = [name for name in _OF_SERVERS if getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"]
    if given:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise InputError(f"{flags} cannot be had with --url: that server runs already; drop one or the other")


def _split(server_args: str) -> list[str]:
    import shlex

    try:
        return shlex.split(server_args)
    except ValueError as error:
        raise InputError(f"--server-args {server_args}: {error}; write it as in a shell") from None


def _about(result: dict[str, Any]) -> str:
    facts = result["workload"]
    (policy,) = result["policies"]
    template = "inside its chat template" if facts["chat_template"] else "without a chat template (--model names one)"
    slots = "an unknown number of" if facts["slots"] is None else facts["slots"]
    return (
        f"{facts['url']} schedules with {policy}: {facts['model']}, drafts {facts['draft'] or 'none'}, {slots} slots; "
        f"{facts['n']} prompts {template}"
    )


def _bundle(name: str | None, draft: str, out: Path, seed: int, asked: list[Prompt]) -> Path | str:
    """The bundle that was named, or one trained on the trace that ships with the package, less what is asked here."""
    from laps_sd.predictors import fit_bundle

    if name is not None:
        from laps_sd.serving.launch import load_bundle

        load_bundle(name)  # the server would refuse it only when its turn has come
        return name
    from laps_sd.data import builtin_trace

    groups = {prompt.group for prompt in asked}
    shipped = builtin_trace("standalone" if draft == "standalone" else "ngram")
    records = [record for record in shipped if record.group not in groups]
    bundle: Path = fit_bundle(records, seed=seed).save(out / "bundle")
    return bundle


def _verdict(result: dict[str, Any]) -> str:
    same = result["identical_tokens"]
    if same is None:
        return "Token ids were not compared: no request was answered twice."
    if same:
        return "Token ids are the same under every policy and in every round."
    return f"Token ids DIFFER between runs for: {', '.join(result['different_requests'])}."
