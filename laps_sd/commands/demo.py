"""``laps-sd demo``: the whole pipeline on embedded defaults."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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
    from laps_sd.commands._output import check_writable, policy_rows, write_json
    from laps_sd.demo import DemoOptions, bench_requests, run_demo
    from laps_sd.report.demo import demo_report

    if json is not None:
        check_writable(json)
    with _progress() as steps:
        figures = run_demo(DemoOptions(out=out, model=model, draft=draft, seed=seed), steps)
    report = demo_report(figures, policy_rows(figures["policies"]), bench_requests(out)).write(out / "report.html")
    write_json(out / "demo.json", figures)
    if json is not None:
        write_json(json, figures)
    _tell(figures, report, out)


class _Steps:
    """One line per step: a spinner and a bar while it runs, a tick when it is done."""

    def __init__(self, progress: Any) -> None:
        self._progress = progress

    def step(self, title: str) -> Any:
        """See :class:`laps_sd.demo.Steps`."""
        from contextlib import contextmanager

        @contextmanager
        def running() -> Iterator[Callable[[float, str], None]]:
            task = self._progress.add_task(title, total=1.0, word="")
            # Into a file there is no bar, so that the log shows each step once, as it begins.
            if not self._progress.console.is_terminal:
                self._progress.console.print(f"{title} …")
            yield lambda share, word: self._progress.update(task, completed=share, word=word)
            self._progress.update(task, completed=1.0, word="")

        return running()


class _progress:  # noqa: N801 - used as a function
    def __enter__(self) -> _Steps:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        self._bars = Progress(
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[word]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._bars.start()
        return _Steps(self._bars)

    def __exit__(self, *_: object) -> None:
        self._bars.stop()


def _tell(figures: dict[str, Any], report: Path, out: Path) -> None:
    from rich.console import Console

    from laps_sd.commands._output import policy_table

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
