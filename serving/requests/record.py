"""Appending finished requests to a trace: the way back from serving to training. Never blocks whoever reports one."""

import hashlib
import hmac
import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from laps_sd.data import PromptRequest, RequestRecord
from laps_sd.data.records.writing import to_json_line
from laps_sd.errors import InputError
from laps_sd.serving.config import RecordConfig
from laps_sd.serving.engine import MetaInfo
from laps_sd.serving.failure_log import FailureLog
from laps_sd.serving.monitoring.explain import STORY_KEY
from laps_sd.serving.requests.exchange import Measurements, ResponseFields
from laps_sd.serving.requests.trace_file import TraceFile

logger = logging.getLogger(__name__)

_WAITING = 10_000  # lines between the server and the disk …
_WAITING_BYTES = 64e6  # … and together so large; what is more is dropped and counted
_NAMES = 50_000  # of the last requests, that a client may choose again
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0  # between two tries to write what the disk did not take


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a prediction and a record say about the server: the values of `laps_sd.data.RequestRecord`."""

    model: str | None = None
    draft: str | None = None
    max_correct_drafts: int | None = None


class Recorder:
    """Write records in a thread of its own, into ``path``, rotated by size.

    What the disk does not take waits, and is tried again and again: a disk that was full loses nothing that found
    room to wait.

    Parameters
    ----------
    config : RecordConfig
        ``path`` must be set.
    on_lost : callable, optional
        Told of every record that will never be written, by their number; called from any thread.

    Attributes
    ----------
    failed : str or None
        Why nothing is written at present (disk full, folder gone); the server goes on.
    lost : int
        Records that were never written.

    Raises
    ------
    InputError
        The file cannot be written, or is something else than a trace.
    """

    def __init__(self, config: RecordConfig, on_lost: Callable[[int], None] = lambda _: None) -> None:
        if config.path is None:
            raise ValueError("a recorder needs a path")
        path = Path(config.path).expanduser().resolve()
        self._file = TraceFile(path, config.max_mb * 1e6, config.keep)
        self._path = path
        self._config = config
        self._on_lost = on_lost
        # New for every server: hashes tell repeats apart within a run and nothing else.
        self._salt = secrets.token_bytes(16)
        self._changed = threading.Condition()
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._closing = False
        self._names: dict[int, int] = {}  # hashes of the last ones, oldest first, and how often each came
        self._bad_records = FailureLog(logger, "a finished request was not recorded")
        self.failed: str | None = None
        self.lost = 0
        try:
            self._file.open()
        except OSError as error:
            raise InputError(f"record.path {path} cannot be written ({error.strerror}); name another") from error
        self._thread = threading.Thread(target=self._run, name="laps-sd-record", daemon=True)
        self._thread.start()

    def add(self, record: RequestRecord) -> bool:
        """Take a record for writing; False when it was dropped because the disk is too slow or gone. Never raises."""
        try:
            line = to_json_line(record.replace(request_id=self._name(record.request_id)))
        except Exception as error:  # a text that no file can hold, or an error of ours
            self._bad_records.note(error)
            self._lose(1)
            return False
        with self._changed:
            fits = not self._closing and len(self._lines) < _WAITING and self._bytes + len(line) <= _WAITING_BYTES
            if fits:
                self._lines.append(line)
                self._bytes += len(line)
                self._changed.notify()
        if not fits:
            self._lose(1)
        return fits

    def _name(self, request_id: str) -> str:
        """Return a name that no other of the last records has: clients choose the ``rid``, and may do so again."""
        name, number = request_id, self._names.pop(hash(request_id), 0) + 1
        while number > 1 and hash(name := f"{request_id}-{number}") in self._names:
            number += 1
        self._names[hash(request_id)] = number
        self._names.setdefault(hash(name), 1)
        while len(self._names) > _NAMES:
            del self._names[next(iter(self._names))]
        return name

    def prompt_fields(self, prompt: str) -> dict[str, str | None]:
        """``prompt`` and ``group`` of a record, as much of them as the configuration allows."""
        mode: Literal["hash", "text", "none"] = self._config.prompts
        if mode == "text":
            return {"prompt": prompt, "group": None}
        if mode == "none":
            return {"prompt": None, "group": None}
        digest = hmac.new(self._salt, prompt.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:16]
        return {"prompt": None, "group": f"hash:{digest}"}

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what is waiting and stop; never waits longer than ``timeout_s`` for a disk that is full or gone."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout_s)
        with self._changed:
            left = len(self._lines)
            self._lines.clear()
        if left:
            self._lose(left)
            logger.warning("laps-sd: %d records of finished requests were not written to %s", left, self._path)

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while (line := self._next()) is not None:
            try:
                self._file.append(line)
            except Exception as error:  # whatever it is: the next try may succeed
                self._stand_still(error)
                with self._changed:
                    if self._closing:
                        return
                    self._changed.wait_for(lambda: self._closing, pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            else:
                pause_s = _FIRST_PAUSE_S
                self._go_on(line)
        self._file.close()

    def _next(self) -> bytes | None:
        """Wait for the line to write next, and leave it where it is; None: there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._closing)
            return self._lines[0] if self._lines else None

    def _go_on(self, written: bytes) -> None:
        with self._changed:
            if self._lines:  # `close` did not wait any longer and counted it as lost
                self._lines.popleft()
            self._bytes -= len(written)
        if self.failed is not None:
            self.failed = None
            logger.warning("laps-sd: recording to %s again; %d records are lost by now", self._path, self.lost)

    def _stand_still(self, error: Exception) -> None:
        said = error.strerror if isinstance(error, OSError) and error.strerror else f"{type(error).__name__}: {error}"
        failed = f"{self._path}: {said}"
        if failed != self.failed:  # once for each reason, not at every try
            unexpected = None if isinstance(error, OSError | InputError) else error
            logger.warning("laps-sd: nothing is recorded (%s); trying again", failed, exc_info=unexpected)
        self.failed = failed

    def _lose(self, count: int) -> None:
        with self._changed:
            self.lost += count
        self._on_lost(count)


def finished_record(
    meta: MetaInfo,
    request: PromptRequest,
    measured: Measurements,
    fields: ResponseFields | None = None,
    *,
    finish_reason: Literal["stop", "length", "abort"],
    facts: ServerFacts,
    arrival_s: float,
    e2e_s: float,
    prompt: str | None,
    group: str | None,
) -> RequestRecord:
    """Return the record of a finished request.

    Parameters
    ----------
    meta : MetaInfo
        SGLang's ``meta_info``.
    request : PromptRequest
        What was known of it at its arrival.
    measured : Measurements
        What the scheduler process measured, where it did. What had a limit of 0 there is not to be recorded.
    fields : ResponseFields, optional
        What the answer says of it; the numbers that explain its way are kept in ``extra``.
    finish_reason : str
        How it ended.
    facts : ServerFacts
        The server.
    arrival_s, e2e_s : float
        Seconds from the start of the record to its arrival, and from there to its end.
    prompt, group : str or None
        See `Recorder.prompt_fields`. Where no text is kept, none is kept of a constraint either: only its kind.
    """
    histogram = lengths = drafts = None
    if "correct_drafts_histogram" in measured:
        histogram = tuple(measured["correct_drafts_histogram"])
        lengths, drafts = tuple(measured["accept_lengths"]), tuple(measured["draft_lengths"])
    return RequestRecord(
        request_id=meta["id"],
        prompt=prompt,
        turns=request.turns,
        prompt_tokens=meta["prompt_tokens"],
        output_tokens=meta["completion_tokens"],
        finish_reason=finish_reason,
        max_new_tokens=request.max_new_tokens,  # SGLang fills in a cap where the client named none
        temperature=request.temperature,
        constraint=_as_much_as(prompt, request.constraint),
        tools=request.tools,
        thinking=request.thinking,
        ignore_eos=True if request.ignore_eos else None,
        model=facts.model,
        draft=facts.draft,
        max_correct_drafts=facts.max_correct_drafts,
        verify_steps=None if histogram is None else sum(histogram),
        correct_drafts_histogram=histogram,
        accept_lengths=lengths,
        draft_lengths=drafts,
        progress=tuple(measured["progress"]) if "progress" in measured else None,
        progress_table=measured.get("progress_table"),
        arrival_s=arrival_s,
        queue_s=measured.get("queue_s"),
        ttft_s=measured.get("ttft_s"),
        e2e_s=e2e_s,
        source="laps-sd-record",
        group=group,
        extra=_story(measured, fields),
    )


def _story(measured: Measurements, fields: ResponseFields | None) -> dict[str, object]:
    """Return what `laps-sd explain` needs: what was predicted, and when the request held a slot."""
    if fields is None:
        return {}
    story = {
        "predicted_tokens": fields["predicted_tokens"],
        "level": fields["level"],
        "priority": fields["priority"],
        "preemptions": fields["preemptions"],
        "slots": [list(span) for span in measured.get("slots", ())],
    }
    return {STORY_KEY: story}


def _as_much_as(prompt: str | None, constraint: str | None) -> str | None:
    if constraint is None or prompt is not None:
        return constraint
    return constraint.partition(":")[0] + ":"
