"""``laps-sd import``: other people's files into request records."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from laps_sd.errors import InputError

if TYPE_CHECKING:
    from laps_sd.data import RequestRecord

_FORMATS = ("sglang-metrics", "sglang-bench", "spec-bench", "arrivals", "records", "chat")


def import_(
    kind: Annotated[str, typer.Argument(metavar="FORMAT", help="One of " + ", ".join(_FORMATS) + ".")],
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
    skip_bad: Annotated[int, typer.Option(min=0, metavar="N", help="Bad rows to leave out before giving up.")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the counts as JSON.")] = None,
) -> None:
    """Turn files in another format into a trace of request records.

    FORMAT is `sglang-metrics` (files or folder of SGLang's `--export-metrics-to-file`), `sglang-bench` (result lines
    of `python -m sglang.benchmark.serving --output-details`), `spec-bench` (answer files), `arrivals` (CSV: arrival_s
    in seconds, input_tokens, output_tokens), `records` (JSON lines or Parquet in the record schema) or `chat`
    (ShareGPT, OpenAI messages or Alpaca, JSON or JSON lines). Lengths are in tokens, times in seconds.
    """
    from laps_sd.commands._console import BadRows, counting, say
    from laps_sd.data.importers import FORMATS, ImportOptions, import_records
    from laps_sd.data.records.bad_rows import Tolerance
    from laps_sd.data.records.writing import write_records
    from laps_sd.data.tokenizer import load_tokenizer
    from laps_sd.files import check_outputs, write_json

    named = next((name for name in FORMATS if name == kind), None)
    if named is None:
        raise InputError(f"unknown format {kind!r}; the formats are {', '.join(FORMATS)}")
    check_outputs((out, json_file), (*sources, questions))
    options = ImportOptions(
        tokenizer=None if tokenizer is None else load_tokenizer(tokenizer),
        questions=questions,
        model=model,
        draft=draft,
        source=source,
        max_new_tokens=max_new_tokens,
        natural_ends=natural_ends,
    )
    bad = BadRows()
    counts = {"censored": 0, "without_prompt": 0}

    def counted() -> Iterator["RequestRecord"]:
        for record in import_records(named, sources, options, Tolerance(skip_bad, bad)):
            counts["censored"] += record.censored
            counts["without_prompt"] += record.prompt is None
            step()
            yield record

    with counting("records imported:") as step:
        rows = write_records(out, counted())
    bad.report()
    say(f"{rows} records in {out}, {counts['censored']} of them censored, {counts['without_prompt']} without a prompt")
    if named == "sglang-metrics" and counts["without_prompt"] and tokenizer is None:
        say("these files hold token ids of chat requests only: give --tokenizer to get their prompts")
    if named == "chat" and tokenizer is None:
        say("lengths are estimated from words: give --tokenizer for exact ones")
    if json_file is not None:
        write_json(json_file, {"records": rows, **counts, "skipped": bad.count, "trace": str(out)})


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("import")(import_)
