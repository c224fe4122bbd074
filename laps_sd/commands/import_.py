"""``laps-sd import``: other people's files into request records."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from laps_sd.extensions import IMPORTERS

if TYPE_CHECKING:
    from laps_sd.data import RequestRecord


def _show_formats(wanted: bool) -> None:
    if not wanted:
        return
    from rich.console import Console
    from rich.table import Table

    from laps_sd.data.importers import importer_class

    table = Table("format", "reads", "options")
    for name in IMPORTERS.names():
        kind = importer_class(name)
        table.add_row(name, kind.summary.replace("`", ""), ", ".join(map(_flag, sorted(kind.uses))))
    Console(markup=False).print(table)
    raise typer.Exit


_SKIPPING = "--skip-bad N leaves out up to N such rows"


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def import_(
    kind: Annotated[
        str, typer.Argument(metavar="FORMAT", help=f"One of {', '.join(IMPORTERS.names())} (--formats tells of each).")
    ],
    sources: Annotated[list[Path], typer.Argument(metavar="SRC…", help="Files, plain or .gz or .zst.")],
    out: Annotated[Path, typer.Option(metavar="TRACE", help="Trace to write: .parquet or .jsonl (.gz, .zst).")],
    tokenizer: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Model folder or hub name; text for token ids, exact lengths for text."),
    ] = None,
    questions: Annotated[
        Path | None, typer.Option(metavar="FILE", help="spec-bench: the question file, adds the prompts.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Target model, where the files name none.")] = None,
    draft: Annotated[str | None, typer.Option(help="Draft algorithm and model, where the files name none.")] = None,
    source: Annotated[str | None, typer.Option(help="Data set or service, where the files name none.")] = None,
    max_new_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Cap of the run, tokens; answers that reached it are censored (spec-bench: 1024)."),
    ] = None,
    natural_ends: Annotated[
        bool, typer.Option("--natural-ends", help="sglang-bench: the run had --disable-ignore-eos.")
    ] = False,
    time_unit: Annotated[
        str | None, typer.Option(metavar="UNIT", help="arrivals: unit of its times, s, ms, us or ns.")
    ] = None,
    skip_bad: Annotated[int, typer.Option(min=0, metavar="N", help="Bad rows to leave out before giving up.")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the counts as JSON.")] = None,
    formats: Annotated[
        bool,
        typer.Option("--formats", callback=_show_formats, is_eager=True, help="Tell of each format, and end."),
    ] = False,
) -> None:
    """Turn files in another format into a trace of request records.

    Lengths are in tokens, times in seconds. Other packages can add formats (entry points `laps_sd.importers`).
    """
    from laps_sd.commands._console import BadRows, counting, say
    from laps_sd.data.importers import ImportOptions, importer_class
    from laps_sd.data.records.bad_rows import Tolerance
    from laps_sd.data.records.writing import write_records
    from laps_sd.data.tokenizer import load_tokenizer
    from laps_sd.files import check_outputs, write_json

    importer_of = importer_class(kind)
    check_outputs((out, json_file), (*sources, questions))
    options = ImportOptions(
        tokenizer=None if tokenizer is None else load_tokenizer(tokenizer),
        questions=questions,
        model=model,
        draft=draft,
        source=source,
        max_new_tokens=max_new_tokens,
        natural_ends=natural_ends,
        time_unit=time_unit,
    )
    importer = importer_of(options)
    given = {
        "tokenizer": tokenizer, "questions": questions, "max_new_tokens": max_new_tokens, "natural_ends": natural_ends,
        "time_unit": time_unit,
    }  # fmt: skip
    for unused in (_flag(name) for name, value in given.items() if value and name not in importer.uses):
        say(f"{unused} changes nothing: {kind} has no use for it")
    bad = BadRows()
    counts = {"censored": 0, "without_prompt": 0}

    def counted() -> Iterator["RequestRecord"]:
        for record in importer.records(sources, Tolerance(skip_bad, bad, _SKIPPING)):
            counts["censored"] += record.censored
            counts["without_prompt"] += record.prompt is None
            step()
            yield record

    with counting("records imported:") as step:
        rows = write_records(out, counted())
    bad.report()
    say(f"{rows} records in {out}, {counts['censored']} of them censored, {counts['without_prompt']} without a prompt")
    for remark in importer.remarks():
        say(remark)
    if json_file is not None:
        write_json(json_file, {"records": rows, **counts, "skipped": bad.count, "trace": str(out)})


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("import")(import_)
