"""``laps-sd evaluate``: how exact the predictions are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laps_sd.commands._training import Acceptance, Data, Encoder, Experiment, Features, MoreData, Predictor

if TYPE_CHECKING:
    from rich.console import Console


def register(app: typer.Typer) -> None:
    """Add the verb ``evaluate``."""
    app.command("evaluate")(evaluate)


def evaluate(
    data: Data,
    more: MoreData = None,
    bundle: Annotated[
        str | None, typer.Option(metavar="BUNDLE", help="Folder, models:/NAME@ALIAS, models:/NAME/VERSION or runs:/ID.")
    ] = None,
    cv: Annotated[
        int | None,
        typer.Option(min=2, metavar="K", help="Instead of a bundle: K grouped folds, each predicted by the others."),
    ] = None,
    features: Features = "lexical",
    predictor: Predictor = "hazard",
    acceptance: Acceptance = "prompt",
    encoder: Encoder = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of folds, learners and bootstrap.")] = 0,
    experiment: Experiment = "laps-sd",
    mlflow: Annotated[bool, typer.Option(help="Log the evaluation to MLflow.")] = True,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the figures as JSON.")] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write figures and plots as one HTML page.")
    ] = None,
) -> None:
    """Compare predictions of length and acceptance with what finished requests did.

    With --bundle on the records given; with --cv out-of-fold, so that no request is predicted by a model that saw it
    or a prompt of its group. Lengths are in tokens, times in milliseconds. Baselines are fitted out-of-fold on the
    same records.
    """
    from rich.console import Console

    from laps_sd.commands._console import counted
    from laps_sd.files import check_outputs, write_json
    from laps_sd.training import run_evaluation
    from laps_sd.training.signals import orderly

    check_outputs((json_file, report), (*data, *(more or [])))
    with orderly(), counted("evaluate", cv or 1) as advance:
        evaluation = run_evaluation(
            bundle,
            [*data, *(more or [])],
            cv=cv,
            features=features,
            predictor=predictor,
            acceptance=acceptance,
            encoder=encoder,
            seed=seed,
            experiment=experiment,
            log=mlflow,
            progress=advance,
        )
    if json_file is not None:
        write_json(json_file, evaluation.figures)
    if report is not None:
        from laps_sd.report.evaluation import evaluation_report

        evaluation_report(evaluation).write(report)
    _print(Console(), evaluation.figures)


def _print(console: Console, figures: dict[str, Any]) -> None:
    from laps_sd.commands._training import acceptance_table, execution_table, length_table, refinement_table

    title = f"{figures['n']} requests, {figures['n_censored']} of them cut"
    console.print(length_table(figures, title))
    for table in (acceptance_table(figures), execution_table(figures), refinement_table(figures)):
        if table is not None:
            console.print(table)
    ceiling, shift = figures["noise_ceiling"], figures["shift"]
    if ceiling:
        console.print(f"noise ceiling: two answers to one prompt agree at Kendall τ {ceiling['kendall_tau']:.2f}")
    if shift and shift["shifted"]:
        worst = ", ".join(list(shift["features"])[:3])
        console.print(
            f"[bold]These requests look unlike the training data[/bold] (stability index {shift['score']:.2f} > 0.25; "
            f"most: {worst}): expect worse figures than at training, and train again on requests like these."
        )
    console.print(
        f"one prediction took {figures['predict_ms_p50']:.2f} ms (p50), {figures['predict_ms_p99']:.2f} ms (p99)"
    )
