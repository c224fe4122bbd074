"""Write request records as JSON lines or Parquet; the file appears whole or not at all."""

import gzip
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from laps_sd.data.records.schema import COLUMN_NAMES, RequestRecord
from laps_sd.errors import InputError
from laps_sd.files import replacing

_BLOCK_ROWS = 8192
_BLOCK_CHARS = 16 << 20
SUFFIXES = ".parquet, .jsonl, .jsonl.gz or .jsonl.zst"


def write_records(path: Path | str, records: Iterable[RequestRecord]) -> int:
    """Write records to ``path`` and return how many there were.

    The suffix decides: ``.parquet``, or ``.jsonl`` (also ``.ndjson``), with ``.gz`` or ``.zst`` behind it if wanted.
    Records are taken a block at a time, so that an iterator over a large file is never held whole. The file is
    written beside its final name and renamed at the end.

    Raises
    ------
    InputError
        The suffix names no format, nothing can be written there, or a text holds a lone surrogate.
    WorkError
        Writing failed half way.
    """
    path = Path(path)
    write = _writer_for(path)
    with replacing(path) as file:
        return write(file, _blocks(records))


def check_name(path: Path) -> None:
    """Raise InputError unless the suffix of ``path`` names a format: before long work, not after it."""
    _writer_for(path)


def _writer_for(path: Path) -> Callable[[IO[bytes], Iterator[Sequence[RequestRecord]]], int]:
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    if suffixes[-1:] == [".parquet"]:
        from laps_sd.data.records.parquet import write_parquet

        return write_parquet
    wrapping = suffixes.pop() if suffixes[-1:] in ([".gz"], [".zst"]) else ""
    if suffixes[-1:] not in ([".jsonl"], [".ndjson"], [".json"]):
        raise InputError(f"{path}: expected a name that ends in {SUFFIXES}")
    return lambda file, blocks: _write_lines(file, blocks, wrapping)


def _write_lines(file: IO[bytes], blocks: Iterator[Sequence[RequestRecord]], wrapping: str) -> int:
    rows = 0
    with _wrapped(file, wrapping) as out:
        for block in blocks:
            out.write(b"".join([to_json_line(record) for record in block]))
            rows += len(block)
    return rows


@contextmanager
def _wrapped(file: IO[bytes], wrapping: str) -> Iterator[IO[bytes]]:
    if wrapping == ".gz":
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as out:
            yield out  # type: ignore[misc]
    elif wrapping == ".zst":
        import zstandard

        with zstandard.ZstdCompressor(level=9).stream_writer(file, closefd=False) as writer:
            yield writer
    else:
        yield file


def to_json_line(record: RequestRecord) -> bytes:
    """Return the record as one line of JSON: known fields only, unknown columns beside them, line feed included."""
    fields = dict(zip(RequestRecord.__struct_fields__, msgspec.structs.astuple(record), strict=True))
    row = {name: fields[name] for name in COLUMN_NAMES if fields[name] is not None}
    return msgspec.json.encode({**row, **record.extra}) + b"\n"


def _blocks(records: Iterable[RequestRecord]) -> Iterator[list[RequestRecord]]:
    block: list[RequestRecord] = []
    chars = 0
    for number, record in enumerate(records, 1):
        _refuse_surrogates(number, record)
        block.append(record)
        chars += len(record.prompt or "")
        if len(block) >= _BLOCK_ROWS or chars >= _BLOCK_CHARS:
            yield block
            block, chars = [], 0
    if block:
        yield block


def _refuse_surrogates(number: int, record: RequestRecord) -> None:
    for name in ("request_id", "prompt", "model", "draft", "source", "group", "category"):
        text: str | None = getattr(record, name)
        if text is None or text.isascii():
            continue
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"record {number} ({record.request_id!r}): {name}: expected Unicode text, got a lone surrogate at "
                f"character {error.start}, which neither Parquet nor JSON in UTF-8 can hold"
            ) from None
