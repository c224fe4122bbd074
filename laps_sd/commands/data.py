"""``laps-sd data``: look into traces, make prompts, hand out the built-in trace, split."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from laps_sd.data.builtin import Draft

data = typer.Typer(name="data", no_args_is_help=True, help="Look into traces; prompts and the built-in trace.")

_TRACE = Annotated[
    list[Path], typer.Argument(metavar="TRACE…", help="Parquet or JSON lines, .gz and .zst as they are.")
]
_PLOTTED = 20_000


@data.command()
def describe(
    traces: _TRACE,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write everything as JSON.")] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write a page with plots.")] = None,
    skip_bad: Annotated[int, typer.Option(min=0, metavar="N", help="Bad rows to leave out before giving up.")] = 0,
) -> None:
    """Counts, length and acceptance distributions, share censored, duplicates; by source, category and draft.

    Lengths are in tokens; accept length is in tokens per verify step, bonus included.
    """
    from collections.abc import Iterator

    from rich.console import Console

    from laps_sd.commands._console import BadRows
    from laps_sd.data import RequestRecord, iter_records
    from laps_sd.data.describe import describe as describe_records
    from laps_sd.files import check_outputs, write_json

    check_outputs((json_file, report), traces)
    bad = BadRows()
    plotted: list[RequestRecord] = []

    def records() -> Iterator[RequestRecord]:
        for trace in traces:
            for record in iter_records(trace, skip_bad=skip_bad, on_bad=bad):
                if report is not None and len(plotted) < _PLOTTED:
                    plotted.append(record.replace(prompt=None))
                yield record

    described = describe_records(records())
    bad.report()
    _print(Console(markup=False), described)
    if json_file is not None:
        write_json(json_file, described)
    if report is not None:
        from laps_sd.report.describe import write_report

        write_report(report, f"Trace {', '.join(trace.name for trace in traces)}", described, plotted)


@data.command()
def prompts(
    out: Annotated[Path, typer.Option(metavar="FILE", help="Written: JSON lines, one prompt each.")],
    n: Annotated[int, typer.Option("--n", min=1, help="How many prompts.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same prompts.")] = 0,
    kinds: Annotated[str | None, typer.Option(metavar="A,B", help="Kinds to take; all by default.")] = None,
) -> None:
    """Write generated prompts for `laps-sd collect`: short and long answers, several languages."""
    from laps_sd.commands._console import say
    from laps_sd.data.collection.prompt_file import write_prompts
    from laps_sd.data.prompts import generate_prompts

    wanted = None if kinds is None else [kind.strip() for kind in kinds.split(",") if kind.strip()]
    written = write_prompts(out, generate_prompts(n, seed, wanted))
    say(f"{written} prompts in {out}")


@data.command()
def schema() -> None:
    """Print the fields of a request record as a Markdown table: types, units, meaning, origin."""
    from laps_sd.data.records.schema import fields_table

    typer.echo(fields_table(), nl=False)


@data.command()
def split(
    traces: _TRACE,
    train: Annotated[Path, typer.Option(metavar="FILE", help="Written: the rows to train on.")],
    test: Annotated[Path, typer.Option(metavar="FILE", help="Written: the rows to test on.")],
    test_share: Annotated[float, typer.Option(help="Share of rows in the test file, 0 to 1.")] = 0.2,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the choice.")] = 0,
) -> None:
    """Split a trace so that near-duplicate prompts never stand on both sides."""
    from laps_sd.commands._console import say
    from laps_sd.data import read_records, write_records
    from laps_sd.data import split as split_records
    from laps_sd.data.records.writing import check_name
    from laps_sd.files import check_outputs

    check_outputs((train, test), traces)
    for path in (train, test):
        check_name(path)
    records = [record for trace in traces for record in read_records(trace)]
    train_rows, test_rows = split_records(records, test_share, seed)
    say(f"{write_records(train, train_rows)} rows in {train}, {write_records(test, test_rows)} in {test}")


@data.command()
def builtin(
    out: Annotated[Path, typer.Option(metavar="TRACE", help="Written: .parquet or .jsonl (.gz, .zst).")],
    draft: Annotated[str | None, typer.Option(help="`ngram` or `standalone`; both by default.")] = None,
    regenerate: Annotated[
        bool, typer.Option("--regenerate", help="Ask the demo model again on the CPU server (an hour; resumable).")
    ] = False,
    requests: Annotated[int | None, typer.Option(min=1, help="With --regenerate: only the first so many.")] = None,
) -> None:
    """Write the trace that ships with the package: our prompts, answered by SmolLM2-135M-Instruct.

    Greedy, 16 requests at once, answers cut at 384 tokens (then censored). With `--regenerate` a run that was
    stopped goes on where it stopped.
    """
    from laps_sd.commands._console import say
    from laps_sd.data import write_records
    from laps_sd.data.builtin import builtin_trace, known_draft

    chosen = None if draft is None else known_draft(draft)
    if regenerate:
        _regenerate(chosen or "ngram", out, requests)
    else:
        say(f"{write_records(out, builtin_trace(chosen))} records in {out}")


def _regenerate(draft: "Draft", out: Path, requests: int | None) -> None:
    """Start the CPU server under ``draft``, send it the prompts of the built-in trace, write ``out``."""
    from laps_sd.commands.collect import collect_with_bar
    from laps_sd.data import read_records, write_records
    from laps_sd.data.builtin import CONCURRENCY, MAX_NEW_TOKENS, PROMPTS, SEED
    from laps_sd.data.prompts import generate_prompts
    from laps_sd.data.tokenizer import load_tokenizer
    from laps_sd.serving.bench.round_log import read_rounds, with_accept_lengths
    from laps_sd.serving.cpu.model import demo_model
    from laps_sd.serving.flags import ROUNDS_ENV
    from laps_sd.serving.process.server import SglangServer
    from laps_sd.serving.process.speculation import speculation_args

    first, count = PROMPTS[draft]
    prompts = generate_prompts(first + count, SEED)[first : first + min(count, requests or count)]
    model = demo_model()
    args = [*speculation_args(draft), "--max-running-requests", str(CONCURRENCY), "--enable-metrics"]
    rounds = out.with_name(f"{out.name}.rounds.jsonl")  # appended to by a run that goes on
    log = out.with_name(f"{out.name}.server.log")
    with SglangServer(args, cpu=True, model=model, log=log, env={ROUNDS_ENV: str(rounds.resolve())}) as server:
        collect_with_bar(
            server.wait_ready().url,
            prompts,
            out,
            concurrency=CONCURRENCY,
            max_new_tokens=MAX_NEW_TOKENS,
            temperature=0.0,
            tokenizer=load_tokenizer(str(model)),
            resume=True,
            timeout_s=3600.0,
        )
    write_records(out, with_accept_lengths(list(read_records(out)), read_rounds(rounds)))


def _print(console: Any, described: dict[str, Any]) -> None:
    from rich.table import Table

    from laps_sd.report.describe import HEADERS, summary_row

    table = Table(title="output tokens: p10 to p99")
    for header in HEADERS:
        table.add_column(header, justify="right" if header else "left", no_wrap=bool(header), overflow="fold")
    table.add_row(*_cells(summary_row("all", described)))
    for name in ("source", "category", "draft"):
        parts = described[f"by_{name}"] or {}
        if len(parts) > 1:
            table.add_section()
            for key, part in parts.items():
                table.add_row(*_cells(summary_row(key, part)))
    console.print(table)
    found = described["prompts"]
    console.print(
        f"{found['n']} prompts, {found['exact_duplicates']} exact duplicates, {found['same_words']} with the words of "
        f"another, {found['groups'] or 'no'} named groups",
        highlight=False,
    )


def _cells(row: tuple[object, ...]) -> list[str]:
    return ["–" if cell is None else str(cell) for cell in row]


def register(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    app.add_typer(data)
