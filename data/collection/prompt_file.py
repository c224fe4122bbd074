"""Files of prompts: what ``laps-sd data prompts`` writes and ``laps-sd collect`` reads."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from laps_sd.data.collection.form import read_form
from laps_sd.data.collection.prompt import Prompt
from laps_sd.data.conversation import conversation
from laps_sd.data.records.bad_rows import Tolerance, where
from laps_sd.data.records.opening import DamagedFileError, open_bytes
from laps_sd.data.records.rows import iter_rows
from laps_sd.errors import InputError
from laps_sd.files import replacing

_TEXT_FIELDS = ("category", "group", "source")


def write_prompts(path: Path, prompts: Iterable[Prompt]) -> int:
    """Write prompts as JSON lines and return how many there were."""
    count = 0
    with replacing(path) as file:
        for prompt in prompts:
            row = {"prompt_id": prompt.prompt_id, "prompt": prompt.prompt, "category": prompt.category}
            file.write(msgspec.json.encode({**row, "group": prompt.group, "source": prompt.source}) + b"\n")
            count += 1
    return count


def read_prompts(path: Path) -> list[Prompt]:
    """Read prompts.

    JSON lines, a JSON array or Parquet with a ``prompt`` or with ``messages``, ``conversations`` (ShareGPT) or
    ``instruction`` (Alpaca) in each row; ``prompt_id`` (or ``request_id``, ``id``), ``category``, ``group``,
    ``source``, ``max_new_tokens`` and ``temperature`` are taken where present, and what the answer is held to
    (:func:`laps_sd.data.collection.form.read_form`). A trace is such a file too. A file that ends in ``.txt`` has one
    prompt a line.

    Raises
    ------
    InputError
        A row without a prompt; two rows with one id; an unreadable file.
    """
    if path.suffix == ".txt":
        return _lines(path)
    prompts: list[Prompt] = []
    names: set[str] = set()
    for row in iter_rows(path, Tolerance()):
        try:
            prompt = _prompt(row.value, f"{path.name.split('.')[0]}-{row.number:05d}")
            if prompt.prompt_id in names:
                raise ValueError(f"prompt_id: expected a name that no earlier row has, got {prompt.prompt_id!r} again")
        except ValueError as error:
            raise InputError(f"{where(path, row.unit, row.number)}: {error}") from None
        names.add(prompt.prompt_id)
        prompts.append(prompt)
    return prompts


def _lines(path: Path) -> list[Prompt]:
    try:
        with open_bytes(path) as file:
            lines = file.read().decode().split("\n")
    except (DamagedFileError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: expected text in UTF-8, one prompt a line ({error})") from None
    prompts = [Prompt(f"{path.stem}-{n:05d}", line) for n, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise InputError(f"{path}: expected at least one prompt, found none")
    return prompts


def _prompt(row: Any, name: str) -> Prompt:
    if not isinstance(row, Mapping):
        raise ValueError(f"expected an object with a prompt, got {type(row).__name__}")
    for key in ("prompt_id", "request_id", "id"):
        if isinstance(row.get(key), str | int):
            name = str(row[key])
            break
    fields: dict[str, Any] = {key: row[key] for key in _TEXT_FIELDS if isinstance(row.get(key), str)}
    for key, kind in (("max_new_tokens", int), ("temperature", int | float)):
        value = row.get(key)
        if value is not None:
            if not isinstance(value, kind) or isinstance(value, bool) or value < 0:
                raise ValueError(f"{key}: expected a number that is not negative, got {value!r}")
            fields[key] = value
    fields["form"] = read_form(row)
    if isinstance(row.get("prompt"), str):
        return Prompt(name, row["prompt"], **fields)
    messages = conversation(row)
    while messages and messages[-1]["role"] == "assistant":  # the answer that is in the file is not asked for
        messages.pop()
    if not any(message["role"] == "user" for message in messages):
        raise ValueError("expected a user turn, found none")
    return Prompt(name, "", messages=tuple(messages), **fields)
