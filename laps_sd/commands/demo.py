"""``laps-sd demo``: the whole pipeline on embedded defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("demo")(demo)


def demo(
    out: Annotated[Path, typer.Option(help="Folder of the trace, models, MLflow store, logs and report.")] = Path(
        "demo-out"
    ),
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    model: Annotated[
        Path | None, typer.Option(help="Model folder to serve [default: SmolLM2-135M-Instruct from PyPI].")
    ] = None,
    draft: Annotated[
        Literal["ngram", "standalone"],
        typer.Option(help="How tokens are drafted: n-grams of past text, or a draft model (the first 24 layers)."),
    ] = "ngram",
    seed: Annotated[int, typer.Option(help="Seed of the prompts, splits and models.", min=0)] = 0,
) -> None:
    """Record, train, evaluate and serve: the whole pipeline on a real SGLang server, with a report at the end.

    Starts SGLang on the CPU with speculative decoding, records what it answers to the project's own prompts, trains
    the predictors into MLflow, and sends one burst of requests to fcfs and to laps-sd. About ten minutes on two cores.
    """
    from laps_sd.commands._console import steps
    from laps_sd.demo import DemoOptions, bench_requests, run_demo
    from laps_sd.files import check_writable, write_json
    from laps_sd.report.comparison import policy_rows
    from laps_sd.report.demo import demo_report
    from laps_sd.serving.bench.figures import read_requests

    if json is not None:
        check_writable(json)
    with steps() as shown:
        figures = run_demo(DemoOptions(out=out, model=model, draft=draft, seed=seed), shown)
    served = read_requests(out / "bench")
    page = demo_report(figures, policy_rows(figures["policies"]), bench_requests(out), served)
    report = page.write(out / "report.html")
    write_json(out / "demo.json", figures)
    if json is not None:
        write_json(json, figures)
    _tell(figures, report, out)


def _tell(figures: dict[str, Any], report: Path, out: Path) -> None:
    from rich.console import Console

    from laps_sd.report.comparison import policy_table

    console = Console()
    console.print(policy_table(figures["policies"]))
    same = {True: "identical", False: "NOT identical", None: "not comparable"}[figures["identical_tokens"]]
    for line in (
        f"Generated tokens under both policies: {same}.",
        f"MLflow run {figures['run_id']}: mlflow ui --backend-store-uri {figures['tracking_uri']}",
        "Serve with these models:",
        f"  {figures['serve']}",
        f"Report: {report}",
    ):
        console.print(line, soft_wrap=True, highlight=False)  # a command must survive copying
