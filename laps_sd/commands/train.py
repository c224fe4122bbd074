"""``laps-sd train``: fit the predictors on request records and log the run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from laps_sd.commands._training import Acceptance, Data, Encoder, Experiment, Features, MoreData, Predictor
from laps_sd.errors import InputError


def register(app: typer.Typer) -> None:
    """Add the verb ``train``."""
    app.command("train")(train)


def train(
    data: Data,
    out: Annotated[Path, typer.Option(metavar="BUNDLE", help="Folder to write the bundle to.")],
    more: MoreData = None,
    features: Features = "lexical",
    predictor: Predictor = "hazard",
    acceptance: Acceptance = "prompt",
    encoder: Encoder = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Same records, same seed: same bundle.")] = 0,
    experiment: Experiment = "laps-sd",
    register: Annotated[
        str | None, typer.Option(metavar="NAME", help="Register the model in MLflow under this name.")
    ] = None,
    alias: Annotated[
        str,
        typer.Option(help="Alias that servers follow (models:/NAME@ALIAS); it moves where the verdict is good."),
    ] = "champion",
    promote: Annotated[bool, typer.Option("--promote", help="Move the alias whatever the verdict.")] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write run, bundle and metrics as JSON.")
    ] = None,
) -> None:
    """Fit the length and acceptance predictors, evaluate them on a fifth of the prompts, write a bundle.

    The bundle itself is fitted on everything (from 40,000 requests on it is the evaluated model). Lengths are in
    tokens. Requests that were cut count as "longer than that", never as endings. The verdict says whether the
    predictor orders requests better than chance and than simple rules.
    """
    from rich.console import Console

    from laps_sd.commands._training import acceptance_table, execution_table, length_table, refinement_table
    from laps_sd.files import check_outputs, write_json
    from laps_sd.training import train as run
    from laps_sd.training.signals import orderly

    check_outputs((json_file,), (*data, *(more or [])))
    if json_file is not None and json_file.resolve().is_relative_to(out.resolve()):
        raise InputError(f"{json_file} lies in the bundle, which holds nothing else; name another place for the JSON")
    shown = Console(stderr=True)
    with orderly(), shown.status("train") as status:
        result = run(
            [*data, *(more or [])],
            out,
            features=features,
            predictor=predictor,
            acceptance=acceptance,
            encoder=encoder,
            seed=seed,
            experiment=experiment,
            register=register,
            alias=alias,
            promote=promote,
            progress=lambda word: status.update(f"train: {word}"),
        )
    if json_file is not None:
        write_json(json_file, result.to_json())
    console = Console(markup=False)
    console.print(length_table(result.metrics, f"validation split, {result.metrics['n']} requests"))
    for table in [show(result.metrics) for show in (acceptance_table, execution_table, refinement_table)]:
        if table is not None:
            console.print(table)
    console.print(f"bundle {result.bundle}, MLflow run {result.run_id} in experiment {result.experiment}")
    console.print(f"verdict: {result.verdict}")
    for warning in result.verdict.warnings:
        console.print(f"warning: {warning}")
    if result.registered:
        console.print(f"registered as {result.registered}")
        if result.promotion is None:
            console.print(f"{alias} stays where it was; `laps-sd promote {register} --alias {alias}` moves it")
        else:
            console.print(str(result.promotion))
