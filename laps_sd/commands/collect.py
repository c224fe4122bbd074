"""``laps-sd collect``: ask a live SGLang server and record what happened."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laps_sd.errors import InputError

if TYPE_CHECKING:
    from laps_sd.data.collection.collect import CollectSummary
    from laps_sd.data.collection.prompt import Prompt


def collect(
    url: Annotated[str, typer.Option(metavar="URL", help="Address of the server, e.g. http://127.0.0.1:30000.")],
    prompts: Annotated[
        Path, typer.Option(metavar="FILE", help="JSON lines, JSON or Parquet with `prompt` or `messages`; or .txt.")
    ],
    out: Annotated[Path, typer.Option(metavar="TRACE", help="Written: .parquet or .jsonl (.gz, .zst).")],
    concurrency: Annotated[int, typer.Option(min=1, help="Requests under way at once, at most.")] = 16,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Cap on an answer, tokens; cut ones are censored.")] = 384,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy.")] = 0.0,
    endpoint: Annotated[
        str, typer.Option(help="`openai` (/v1/chat/completions: the server templates) or `generate` (/generate).")
    ] = "openai",
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="The served model's: counts what answers said (progress); with `generate` also its chat template.",
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Longest wait for one answer, seconds.")] = 600.0,
    arrivals: Annotated[
        Path | None,
        typer.Option(metavar="TRACE", help="Send the prompts at the arrival times (seconds) of this trace."),
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="LAPS_SD_API_KEY", help="Key of a server started with --api-key.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where an earlier run stopped.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the counts as JSON.")] = None,
) -> None:
    """Send prompts to a live SGLang server and record lengths, ends, accepted drafts and times.

    Every finished request is on disk at once, in TRACE.partial.jsonl; when all are done TRACE is written.
    """
    from laps_sd.commands._console import say
    from laps_sd.data.collection.prompt_file import read_prompts
    from laps_sd.data.tokenizer import load_tokenizer
    from laps_sd.files import check_outputs, write_json

    if endpoint not in ("openai", "generate"):
        raise InputError(f"unknown endpoint {endpoint!r}; expected openai or generate")
    check_outputs((out, json_file), (prompts, arrivals))
    asked = read_prompts(prompts)
    times = _arrival_times(arrivals, len(asked)) if arrivals is not None else None
    done = collect_with_bar(
        url,
        asked[: len(times)] if times is not None else asked,
        out,
        concurrency=concurrency,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        endpoint=endpoint,
        tokenizer=None if tokenizer is None else load_tokenizer(tokenizer),
        resume=resume,
        timeout_s=timeout,
        arrivals=times,
        api_key=api_key,
    )
    for reason in done.failures:
        say(f"failed: {reason}")
    say(
        f"{done.recorded} records in {out} ({done.resumed} from earlier runs), {done.failed} requests failed, "
        f"{done.output_tokens} tokens in {done.seconds:.0f} s"
    )
    if json_file is not None:
        write_json(
            json_file,
            {
                "trace": str(out),
                "recorded": done.recorded,
                "resumed": done.resumed,
                "failed": done.failed,
                "seconds": done.seconds,
                "output_tokens": done.output_tokens,
            },
        )


def collect_with_bar(url: str, prompts: "Sequence[Prompt]", out: Path, **options: Any) -> "CollectSummary":
    """Collect under a progress bar. See :func:`laps_sd.data.collection.collect.collect`."""
    from laps_sd.commands._console import counted
    from laps_sd.data.collection.collect import collect as collect_records

    with counted("collecting", len(prompts)) as tell:
        return collect_records(
            url, prompts, out, on_progress=lambda done, failed, total: tell(done + failed, total), **options
        )


def _arrival_times(path: Path, wanted: int) -> list[float]:
    """Return the arrivals of a trace, from 0, for as many prompts as it has and as there are."""
    from laps_sd.data import iter_records

    times = sorted(record.arrival_s for record in iter_records(path) if record.arrival_s is not None)
    if not times:
        raise InputError(f"{path}: expected arrival times (arrival_s), found none")
    return [time - times[0] for time in times[:wanted]]


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("collect")(collect)
