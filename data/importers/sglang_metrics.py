"""Files that SGLang writes with ``--export-metrics-to-file``: one JSON line per finished request.

Format read in SGLang 0.5.23, ``srt/observability/request_metrics_exporter.py``: ``meta_info`` of the answer, and the
request itself as JSON text under ``request_parameters``. A chat request is there with templated token ids only, so its
prompt needs the model's tokenizer.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from laps_sd.data.canonical import CanonicalPrompt, read_rendered
from laps_sd.data.importers.base import Importer, Place
from laps_sd.data.importers.options import ImportOptions
from laps_sd.data.meta_info import constraint_of, from_meta_info
from laps_sd.data.records.bad_rows import Row, Tolerance
from laps_sd.data.records.rows import iter_rows
from laps_sd.data.rendered import Shown, thinking_of
from laps_sd.errors import InputError

FILE_PATTERN = "sglang-request-metrics-*.log*"


class SglangMetrics(Importer):
    """SGLang's own record of its requests, a line each."""

    summary = "SGLang's own files (`--export-metrics-to-file`, best with `--enable-metrics`)"
    example = "FOLDER --tokenizer MODEL --out trace.parquet"
    unsaid = (
        "model and draft (`--model`, `--draft`); the text of chat requests, which is there as templated token ids only "
        "(`--tokenizer` decodes them and takes the template off again). Queue times, times to first token and arrivals "
        "are there only when the server ran with `--enable-metrics`. Without the answers there is no `progress`."
    )
    uses = frozenset({"tokenizer"})

    def __init__(self, options: ImportOptions) -> None:
        super().__init__(options)
        self._without_text = 0

    def files(self, source: Path) -> list[Path]:
        """Return the files of a folder that a server wrote to, in the order of time."""
        if not source.is_dir():
            return [source]
        found = sorted(source.glob(FILE_PATTERN))
        if not found:
            raise InputError(f"{source}: expected files named {FILE_PATTERN}, found none")
        return found

    def rows(self, path: Path, tolerance: Tolerance) -> Iterator[Row]:
        """Yield the lines, each with the time from which arrivals are counted."""
        start = _first_arrival(path)
        for row in iter_rows(path, tolerance):
            yield row._replace(value=(start, row.value))

    def convert(self, value: Any, place: Place) -> Iterable[dict[str, Any]]:
        """Return the fields of one line."""
        start, line = value
        if not isinstance(line, Mapping) or not isinstance(line.get("request_parameters"), str):
            raise ValueError(
                "request_parameters: expected the request as JSON text (a line of --export-metrics-to-file)"
            )
        asked = _decoded(line["request_parameters"])
        sampling = asked.get("sampling_params")
        sampling = sampling if isinstance(sampling, Mapping) else {}
        if sampling.get("max_new_tokens") == 0 or _empty(line):
            self.notes["requests that asked for no token (SGLang's warm-up is one) were left out"] += 1
            return []
        fields = self.options.complete({"request_id": line.get("id"), **from_meta_info(line)})
        read = _prompt(asked, self.options)
        self._without_text += read is None
        if read is not None:
            fields.update(_shown(*read, asked.get("require_reasoning") is True))
        if sampling.get("ignore_eos") is True:
            fields["ignore_eos"] = True
        fields.update({k: sampling[k] for k in ("max_new_tokens", "temperature") if sampling.get(k) is not None})
        if (constraint := constraint_of(sampling)) is not None:
            fields["constraint"] = constraint
        received = line.get("request_received_ts")
        if start is not None and isinstance(received, float):
            fields["arrival_s"] = round(max(0.0, received - start), 6)
        steps, proposed = line.get("spec_verify_ct"), line.get("spec_num_proposed_drafts")
        if steps and isinstance(proposed, int):
            fields["max_correct_drafts"] = proposed // steps  # SGLang multiplied steps by num_draft_tokens − 1
        if not fields.get("prompt_tokens") and isinstance(asked.get("input_ids"), list):
            fields["prompt_tokens"] = len(asked["input_ids"])  # aborted before SGLang counted
        kept = {name: line[name] for name in ("cached_tokens", "num_retractions") if line.get(name)}
        return [{**fields, **kept}]

    def remarks(self) -> list[str]:
        """Return what was passed over, and how to get the prompts that are missing."""
        if not self._without_text or self.options.tokenizer is not None:
            return super().remarks()
        hint = "these files hold token ids of chat requests only: give --tokenizer to get their prompts"
        return [*super().remarks(), hint]


def _empty(line: Mapping[str, Any]) -> bool:
    """Whether the request was "cut" before its first token: it asked for none."""
    reason = line.get("finish_reason")
    reason = reason.get("type") if isinstance(reason, Mapping) else reason
    return reason == "length" and not line.get("completion_tokens")


def _decoded(text: str) -> Mapping[str, Any]:
    try:
        asked = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(f"request_parameters: expected the request as JSON text ({error})") from None
    if not isinstance(asked, Mapping):
        raise ValueError("request_parameters: expected a JSON object")
    return asked


def _prompt(asked: Mapping[str, Any], options: ImportOptions) -> tuple[CanonicalPrompt, Shown] | None:
    text, ids = asked.get("text"), asked.get("input_ids")
    if isinstance(text, str):
        return read_rendered(text=text, tokenizer=options.tokenizer)
    if isinstance(ids, list) and options.tokenizer is not None:
        return read_rendered(token_ids=ids, tokenizer=options.tokenizer)
    return None


def _shown(prompt: CanonicalPrompt, shown: Shown, reasons: bool) -> dict[str, Any]:
    """Return what a recorder would have written of the same request."""
    fields = {"tools": shown.tools, "thinking": thinking_of(shown, reasons)}
    return {
        "prompt": prompt.text,
        "turns": prompt.turns,
        **{name: value for name, value in fields.items() if value is not None},
    }


def _first_arrival(path: Path) -> float | None:
    """Requests are written as they end: the first to arrive may stand anywhere."""
    received = [
        row.value["request_received_ts"]
        for row in iter_rows(path, Tolerance(2**62))
        if isinstance(row.value, Mapping) and isinstance(row.value.get("request_received_ts"), float)
    ]
    return min(received, default=None)
