"""``laps-sd predict``: what a bundle says about prompts."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laps_sd.errors import InputError

if TYPE_CHECKING:
    from laps_sd.data import PromptRequest
    from laps_sd.scheduler import Prediction


#: Numbers of a JSON line that a prediction reads besides the prompt and the model.
_NUMBERS = ("prompt_tokens", "max_new_tokens", "temperature", "turns")


def register(app: typer.Typer) -> None:
    """Add the verb ``predict``."""
    app.command("predict")(predict)


def predict(
    bundle: Annotated[str, typer.Option(metavar="BUNDLE", help="Folder, models:/NAME@ALIAS or runs:/ID.")],
    prompt: Annotated[str | None, typer.Argument(help="The prompt. [default: standard input, whole]")] = None,
    file: Annotated[
        Path | None,
        typer.Option(metavar="TRACE", help="Predict each prompt of a trace, or of rows with a prompt."),
    ] = None,
    max_new_tokens: Annotated[int | None, typer.Option(min=1, max=2**53, help="Cap of the answer, tokens.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0, max=1000, help="Sampling temperature.")] = None,
    model: Annotated[str | None, typer.Option(help="Target model. [default: none in particular]")] = None,
    draft: Annotated[str | None, typer.Option(help="Draft algorithm and model. [default: that of training]")] = None,
    max_correct_drafts: Annotated[
        int | None,
        typer.Option(min=0, max=2**53, help="Most drafts a verify step can accept. [default: that of training]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object a prompt, curves included.")] = False,
) -> None:
    """Predict output length (tokens) and accept length (tokens per verify step) from prompts.

    Prints mean, median and 80 % interval of the length, the prior accept length with its weight in verify steps, and
    the expected verify steps. Where a limit is known (--max-new-tokens, or of a row) lengths are those under it; the
    curve of --json is that without one.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from laps_sd.data import PromptRequest
    from laps_sd.training import load_bundle

    if file is not None and prompt is not None:
        raise InputError("give a prompt or --file, not both")
    loaded = load_bundle(bundle)
    given: dict[str, Any] = {"max_new_tokens": max_new_tokens, "temperature": temperature, "model": model}
    given = {name: value for name, value in given.items() if value is not None}
    if file is not None:
        requests = [replace(request, **given) for request in _requests(file)]
        if not requests:
            raise InputError(f"{file}: expected at least one row with a prompt, found none")
    else:
        requests = [PromptRequest(prompt=prompt if prompt is not None else _standard_input(), **given)]
    predictions = loaded.predict(requests, draft=draft, max_correct_drafts=max_correct_drafts)
    if as_json:
        _print_json(requests, predictions)
        return
    table = Table("prompt", "mean", "median", "10 %", "90 %", "tok/step", "weight", "steps")
    for request, prediction in zip(requests, predictions, strict=True):
        numbers = summary(prediction, request.max_new_tokens)
        table.add_row(
            Text(_start(request.prompt)),
            *(f"{value:.3g}" if value < 100 else f"{value:.0f}" for value in numbers.values()),
        )
    Console().print(table)


def _start(prompt: str) -> str:
    """What a table shows of a prompt: no control character, which a terminal would obey, and no half of a pair."""
    return "".join(c if c.isprintable() else "�" for c in " ".join(prompt[:200].split())[:40])


def _standard_input() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise InputError(f"standard input is not text in UTF-8 ({error.reason} at byte {error.start})") from error


def summary(prediction: Prediction, limit: int | None = None) -> dict[str, float]:
    """Return the numbers that people read: tokens, tokens per verify step, verify steps; lengths under the limit."""
    length = prediction.length
    mean = length.mean(0, limit)

    def quantile(q: float) -> float:
        return length.quantile(q) if limit is None else min(length.quantile(q), float(limit))

    return {
        "length_mean": mean,
        "length_p50": quantile(0.5),
        "length_p10": quantile(0.1),
        "length_p90": quantile(0.9),
        "accept_length": prediction.accept_length,
        "accept_strength": prediction.accept_strength,
        "verify_steps": mean / prediction.accept_length,
    }


def _print_json(requests: Sequence[PromptRequest], predictions: Sequence[Prediction]) -> None:
    import json

    for request, prediction in zip(requests, predictions, strict=True):
        row: dict[str, Any] = {**summary(prediction, request.max_new_tokens), **prediction.to_wire()}
        sys.stdout.write(json.dumps(row, allow_nan=False) + "\n")


def _requests(file: Path) -> Iterator[PromptRequest]:
    """Requests of a file with a prompt in each row; a trace is such a file."""
    from laps_sd.data import PromptRequest
    from laps_sd.data.records.rows import iter_placed

    for place, row in iter_placed(file):
        if not isinstance(row, dict) or not isinstance(row.get("prompt"), str):
            raise InputError(f"{place}: expected an object with a text in `prompt`")
        known = {name: row[name] for name in (*_NUMBERS, "model") if row.get(name) is not None}
        for name, value in known.items():
            if not isinstance(value, str) if name == "model" else not _is_amount(value):
                expected = "text" if name == "model" else "a number, 0 or more"
                raise InputError(f"{place}: {name}: expected {expected}, got {value!r:.60}")
        yield PromptRequest(prompt=row["prompt"], **known)


def _is_amount(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 2**63
