"""A trace that grows by whole lines: no half line stays in it, whatever a full disk or a killed server left there."""

import json
import logging
import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from laps_sd.errors import InputError

logger = logging.getLogger(__name__)

_BLOCK = 1 << 16  # bytes read at a time in search of the last line feed


class TraceFile:
    """Append lines to ``path``; a full file is renamed to ``trace.N.jsonl``, N counting up.

    A file that was moved away or deleted is made anew. After an exception nothing of the line stays in the file, and
    the next call tries from the start: opening the file included.

    Parameters
    ----------
    path : Path
    max_bytes : float
        Size at which a file is full.
    keep : int
        Full files that are kept.
    """

    def __init__(self, path: Path, max_bytes: float, keep: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._descriptor: int | None = None

    def open(self) -> None:
        """Open the file, made where it is missing, and mend its end.

        Raises
        ------
        OSError
            It cannot be written.
        InputError
            What stands at its end is no line of a trace.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            mend_end(self._descriptor, self._path)
        except BaseException:
            self.close()
            raise

    def append(self, line: bytes) -> None:
        """Write ``line``, which ends in a line feed; OSError when it cannot be written."""
        try:
            self._write(self._ready(), line)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file; the next `append` opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _ready(self) -> int:
        """Return the descriptor of a file with room that still stands under its name."""
        if self._descriptor is not None and not self._stands():
            self.close()
        if self._descriptor is None:
            self.open()
        assert self._descriptor is not None
        if os.fstat(self._descriptor).st_size >= self._max_bytes:
            self.close()
            rotate(self._path, self._keep)
            self.open()
        return self._descriptor

    def _stands(self) -> bool:
        """Whether the open file is the one that has the name: a file deleted by hand would be written in vain."""
        assert self._descriptor is not None
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def _write(self, descriptor: int, line: bytes) -> None:
        before, written = os.fstat(descriptor).st_size, 0
        try:
            # One call as a rule: whoever reads meanwhile, or after a crash, sees whole lines.
            while written < len(line):
                written += os.write(descriptor, line[written:])
        except OSError:
            with suppress(OSError):  # what cannot be cut now is cut when the file is opened again
                if os.fstat(descriptor).st_size == before + written:  # else another server writes there too
                    os.ftruncate(descriptor, before)
            raise


def mend_end(descriptor: int, path: Path) -> None:
    """Let the file end with a whole line: the next one would be glued to a half one.

    The half line that a crash left is cut off, a whole one gets its line feed.

    Raises
    ------
    InputError
        What follows the last line feed is no beginning of a JSON object: this is no trace, and nothing is changed.
    """
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size == 0:
        return
    rest = _after_last_line_feed(descriptor, status.st_size)
    if not rest:
        return
    text = rest.strip(b"\0 \r\t")  # a disk that lost power may leave zeros
    if text and not text.startswith(b"{"):
        raise InputError(f"record.path {path} is no trace in JSON lines; name another file")
    if _is_json(text):
        os.write(descriptor, b"\n")
        return
    os.ftruncate(descriptor, status.st_size - len(rest))
    logger.warning("laps-sd: %s ended in half a line; its %d bytes were cut off", path, len(rest))


def _after_last_line_feed(descriptor: int, size: int) -> bytes:
    rest, start = b"", size
    while start > 0:
        length = min(_BLOCK, start)
        start -= length
        block = os.pread(descriptor, length, start)
        _, line_feed, tail = block.rpartition(b"\n")
        rest = tail + rest
        if line_feed:
            break
    return rest


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def rotate(path: Path, keep: int) -> None:
    """Rename ``trace.jsonl`` to ``trace.N.jsonl``, N counting up, and delete all but the last ``keep`` of those."""
    closed = sorted(closed_files(path))
    number = closed[-1][0] + 1 if closed else 1
    path.replace(path.with_name(f"{path.stem}.{number}{path.suffix}"))
    for _, old in closed[: max(len(closed) + 1 - keep, 0)]:
        old.unlink()


def closed_files(path: Path) -> list[tuple[int, Path]]:
    """Return the rotated files beside ``path`` with their numbers."""
    name = re.compile(re.escape(path.stem) + r"\.(\d+)" + re.escape(path.suffix))
    found = ((name.fullmatch(other.name), other) for other in path.parent.iterdir())
    return [(int(match.group(1)), other) for match, other in found if match]
