"""Appending finished requests to a trace: the way back from serving to training. Never blocks whoever reports one."""

import hashlib
import hmac
import os
import queue
import re
import secrets
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from laps_sd.data import PromptRequest, RequestRecord
from laps_sd.data.records.writing import to_json_line
from laps_sd.errors import InputError
from laps_sd.serving.config import RecordConfig

if TYPE_CHECKING:
    from laps_sd.serving.tokenizer_side import ServerFacts

_WAITING = 10_000  # records between the server and the disk; more than that and they are dropped and counted


class Recorder:
    """Write records in a thread of its own, into ``path``, rotated by size.

    Parameters
    ----------
    config : RecordConfig
        ``path`` must be set.

    Attributes
    ----------
    failed : str or None
        Why writing stopped (disk full, folder gone); the server goes on.

    Raises
    ------
    InputError
        The file cannot be written.
    """

    def __init__(self, config: RecordConfig) -> None:
        if config.path is None:
            raise ValueError("a recorder needs a path")
        self._path = Path(config.path).expanduser().resolve()
        self._config = config
        # New for every server: hashes tell repeats apart within a run and nothing else.
        self._salt = secrets.token_bytes(16)
        self._queue: queue.Queue[RequestRecord | None] = queue.Queue(_WAITING)
        self.failed: str | None = None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.open("ab").close()
        except OSError as error:
            raise InputError(f"record.path {self._path} cannot be written ({error.strerror}); name another") from error
        self._thread = threading.Thread(target=self._run, name="laps-sd-record", daemon=True)
        self._thread.start()

    def add(self, record: RequestRecord) -> bool:
        """Take a record for writing; False when it was dropped because the disk is too slow or gone."""
        if self.failed is not None:
            return False
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            return False
        return True

    def prompt_fields(self, prompt: str) -> dict[str, str | None]:
        """``prompt`` and ``group`` of a record, as much of them as the configuration allows."""
        mode: Literal["hash", "text", "none"] = self._config.prompts
        if mode == "text":
            return {"prompt": prompt, "group": None}
        if mode == "none":
            return {"prompt": None, "group": None}
        digest = hmac.new(self._salt, prompt.encode(), hashlib.sha256).hexdigest()[:16]
        return {"prompt": None, "group": f"hash:{digest}"}

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what is waiting and stop; never waits longer than ``timeout_s`` for a disk that is full or gone."""
        deadline = monotonic() + timeout_s
        with suppress(queue.Full):
            self._queue.put(None, timeout=0 if self.failed is not None else timeout_s)
        self._thread.join(max(deadline - monotonic(), 0.0))

    def _run(self) -> None:
        try:
            while True:
                with self._path.open("ab") as file:
                    if not self._write_until_full(file.fileno()):
                        return
                rotate(self._path, self._config.keep)
        except OSError as error:
            self.failed = f"{self._path}: {error.strerror}"

    def _write_until_full(self, descriptor: int) -> bool:
        """Write records; True when the file is full, False when there will be no more."""
        size = os.fstat(descriptor).st_size
        while size < self._config.max_mb * 1e6:
            record = self._queue.get()
            if record is None:
                return False
            # One write per line: whoever reads meanwhile, or after a crash, sees whole lines.
            size += os.write(descriptor, to_json_line(record))
        return True


def rotate(path: Path, keep: int) -> None:
    """Rename ``trace.jsonl`` to ``trace.N.jsonl``, N counting up, and delete all but the last ``keep`` of those."""
    closed = sorted(closed_files(path))
    number = closed[-1][0] + 1 if closed else 1
    path.replace(path.with_name(f"{path.stem}.{number}{path.suffix}"))
    for _, old in closed[: max(len(closed) + 1 - keep, 0)]:
        old.unlink()


def closed_files(path: Path) -> list[tuple[int, Path]]:
    """The rotated files beside ``path`` with their numbers."""
    name = re.compile(re.escape(path.stem) + r"\.(\d+)" + re.escape(path.suffix))
    found = ((name.fullmatch(other.name), other) for other in path.parent.iterdir())
    return [(int(match.group(1)), other) for match, other in found if match]


def record_of(
    meta: Mapping[str, Any],
    request: PromptRequest,
    measured: Mapping[str, Any],
    *,
    finish_reason: Literal["stop", "length", "abort"],
    facts: "ServerFacts",
    arrival_s: float,
    e2e_s: float,
    prompt: str | None,
    group: str | None,
) -> RequestRecord:
    """Return the record of a finished request.

    Parameters
    ----------
    meta : mapping
        SGLang's ``meta_info``.
    measured : mapping
        What the scheduler process measured: ``queue_s``, ``ttft_s`` and the steps' drafts, each where known. What had
        a limit of 0 there is not to be recorded.
    """
    histogram = measured.get("correct_drafts_histogram")
    return RequestRecord(
        request_id=meta["id"],
        prompt=prompt,
        turns=request.turns,
        prompt_tokens=meta["prompt_tokens"],
        output_tokens=meta["completion_tokens"],
        finish_reason=finish_reason,
        max_new_tokens=request.max_new_tokens,  # SGLang fills in a cap where the client named none
        temperature=request.temperature,
        model=facts.model,
        draft=facts.draft,
        max_correct_drafts=facts.max_correct_drafts,
        verify_steps=None if histogram is None else sum(histogram),
        correct_drafts_histogram=None if histogram is None else tuple(histogram),
        accept_lengths=None if histogram is None else tuple(measured["accept_lengths"]),
        draft_lengths=None if histogram is None else tuple(measured["draft_lengths"]),
        arrival_s=arrival_s,
        queue_s=measured.get("queue_s"),
        ttft_s=measured.get("ttft_s"),
        e2e_s=e2e_s,
        source="laps-sd-record",
        group=group,
    )
