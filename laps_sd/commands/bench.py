"""``laps-sd bench``: policies against each other on real SGLang servers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from laps_sd.data.prompt import Prompt


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("bench")(bench)


def bench(
    policies: Annotated[str, typer.Option(help="Policies in turn: laps-sd and SGLang's own names.")] = (
        "fcfs,hrrn,laps-sd"
    ),
    model: Annotated[
        Path | None, typer.Option(help="Model folder to serve [default: SmolLM2-135M-Instruct, CPU only].")
    ] = None,
    bundle: Annotated[
        str | None,
        typer.Option(
            help="Bundle folder or MLflow URI [default: trained here on the built-in trace, less the prompts asked]."
        ),
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="File of prompts, as for `laps-sd collect` [default: the project's own].")
    ] = None,
    requests: Annotated[int, typer.Option(help="Requests per run.", min=2)] = 32,
    rate: Annotated[
        float | None, typer.Option(help="Poisson arrivals per second [default: all at once].", min=1e-6)
    ] = None,
    slots: Annotated[int, typer.Option(help="Requests that decode together (--max-running-requests).", min=1)] = 4,
    max_new_tokens: Annotated[int, typer.Option(help="Cap on every answer, tokens.", min=1)] = 256,
    draft: Annotated[
        Literal["ngram", "standalone", "none"],
        typer.Option(help="How tokens are drafted: n-grams of past text, a draft model (CPU demo model only), not."),
    ] = "ngram",
    draft_model: Annotated[
        Path | None, typer.Option(help="Draft model for standalone [default: first 24 layers of the demo model].")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Turns of every policy, A B C A B C.", min=1)] = 2,
    seed: Annotated[int, typer.Option(help="Seed of prompts and arrivals.", min=0)] = 0,
    gpu: Annotated[bool, typer.Option("--gpu", help="Serve on the GPU instead of the CPU stand-in.")] = False,
    url: Annotated[
        str | None, typer.Option(help="Send one run to this running server instead; --policies names it.")
    ] = None,
    server_args: Annotated[str, typer.Option(help="Further arguments for every server, one string.")] = "",
    out: Annotated[Path, typer.Option(help="Folder for one line per request and the servers' logs.")] = Path(
        "bench-out"
    ),
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report to this file.")] = None,
) -> int:
    """Send the same requests at the same times to every policy, each on a fresh server, and compare latencies.

    Decoding is greedy, and the token ids that the policies produce are compared: exit code 1 when they differ.
    Latencies are seconds, as a client sees them.
    """
    from rich.console import Console

    from laps_sd.commands._output import check_outputs, policy_table, write_json
    from laps_sd.serving.bench import bench_url, run_bench

    check_outputs((json, report), (prompts,))
    names = [name.strip() for name in policies.split(",") if name.strip()]
    asked = _prompts(prompts, requests, seed)
    with _progress() as tell:
        common: dict[str, Any] = {
            "prompts": asked, "out_dir": out, "max_new_tokens": max_new_tokens, "model": model, "rate": rate,
            "seed": seed, "progress": tell,
        }  # fmt: skip
        if url is not None:
            result = bench_url(url, label=names[0] if len(names) == 1 else None, **common)
        else:
            trained = _bundle(bundle, draft, out, seed, asked) if "laps-sd" in names else None
            result = run_bench(
                policies=names,
                bundle=trained,
                draft=draft,
                draft_model=draft_model,
                max_running=slots,
                rounds=rounds,
                cpu=not gpu,
                server_args=server_args.split(),
                **common,
            )
    console = Console(markup=False)
    console.print(policy_table(result["policies"], title="Latency in seconds, real server"))
    console.print(_verdict(result))
    if json is not None:
        write_json(json, result)
    if report is not None:
        from laps_sd.report.bench import bench_report

        bench_report(result).write(report)
    return 1 if result["identical_tokens"] is False else 0


def _prompts(path: Path | None, count: int, seed: int) -> list[Prompt]:
    if path is None:
        from laps_sd.data.prompts import generate_prompts

        return generate_prompts(count, seed)
    from laps_sd.data.promptfile import read_prompts

    return list(read_prompts(path))[:count]


def _bundle(name: str | None, draft: str, out: Path, seed: int, asked: list[Prompt]) -> Path | str:
    """The bundle that was named, or one trained on the trace that ships with the package, less what is asked here."""
    if name is not None:
        return name
    from laps_sd.data import builtin_trace
    from laps_sd.predictors import fit_bundle

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


def _progress() -> Any:
    from contextlib import contextmanager

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    @contextmanager
    def shown() -> Any:
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
            task = bar.add_task("starting", total=1.0)
            yield lambda what, share: bar.update(task, description=what, completed=share)

    return shown()
