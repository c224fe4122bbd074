"""Parquet: the schema that follows from the record, rows from files, and files from records.

Unknown columns come and go as columns of their own while every value of one fits the type that it had at first (the
first block of records decides); what does not fit travels as JSON in a column named ``extra``. So nothing is lost,
and common cases stay readable to every other tool.
"""

import io
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, get_args, get_type_hints

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from laps_sd.data.records.bad_rows import Row
from laps_sd.data.records.opening import DamagedFileError
from laps_sd.data.records.schema import COLUMN_NAMES, RequestRecord, describe_fields
from laps_sd.errors import InputError

_READ_ROWS = 1024
_BATCH_BYTES = 8 << 20
#: Rows that are Python objects at a time.
_OBJECT_ROWS = 128
#: Column chunks are read through a buffer of this size: a row group may hold a million rows.
_READ_BYTES = 1 << 20
_HINTS = get_type_hints(RequestRecord)
_NATIVE: dict[type, pa.DataType] = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
_INT64 = range(-(2**63), 2**63)


def arrow_schema() -> pa.Schema:
    """Return the Parquet columns of a record, each with its unit and meaning in the metadata."""
    return pa.schema(
        [
            pa.field(
                doc.name,
                _arrow_type(_HINTS[doc.name]),
                nullable=not doc.required,
                metadata={"unit": doc.unit, "meaning": doc.meaning},
            )
            for doc in describe_fields()
            if doc.name in COLUMN_NAMES
        ]
    )


def _arrow_type(hint: Any) -> pa.DataType:
    for arm in [a for a in get_args(hint) if a is not type(None)] or [hint]:
        if arm in _NATIVE:
            return _NATIVE[arm]
        if getattr(arm, "__origin__", None) is tuple:
            return pa.list_(pa.int64())
    return pa.string()


# Reading


def iter_parquet(path: Path, file: io.BufferedReader) -> Iterator[Row]:
    """Yield the rows of a Parquet file, a small batch in memory at a time.

    pandas writes missing whole numbers as the float NaN and the others as 12.0: both are read as they were meant.

    Raises
    ------
    InputError
        The file is cut or damaged.
    """
    try:
        with _seekable(file) as source, pq.ParquetFile(source, pre_buffer=False, buffer_size=_READ_BYTES) as parquet:
            number = 0
            for batch in parquet.iter_batches(batch_size=_batch_rows(parquet.metadata)):
                names = batch.schema.names
                for start in range(0, batch.num_rows, _OBJECT_ROWS):
                    columns = batch.slice(start, _OBJECT_ROWS).columns
                    for values in zip(*map(_values, names, columns), strict=True):
                        number += 1
                        yield Row("row", number, dict(zip(names, values, strict=True)))
    except (pa.ArrowException, OSError, DamagedFileError) as error:
        why = (str(error).splitlines() or ["unknown damage"])[0].rstrip(".")
        raise InputError(f"{path}: expected a whole Parquet file ({why}); fetch or write it again") from None


def _batch_rows(metadata: pq.FileMetaData) -> int:
    """Return how many rows to decode at once: few where they are long."""
    rows: int = metadata.num_rows
    size: int = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    return max(1, min(_READ_ROWS, _BATCH_BYTES * rows // max(1, size)))


@contextmanager
def _seekable(file: io.BufferedReader) -> Iterator[IO[bytes]]:
    """Parquet is read from its end: what comes out of a decompressor or a pipe is put into a temporary file first."""
    if isinstance(file.raw, io.FileIO) and file.seekable():
        yield file
        return
    with tempfile.TemporaryFile() as spool:
        shutil.copyfileobj(file, spool)
        spool.seek(0)
        yield spool


def _values(name: str, column: pa.Array) -> Sequence[Any]:
    values: list[Any] = column.to_pylist()
    if name == "extra":
        return [_extra(value) for value in values]
    if name not in COLUMN_NAMES:
        return (
            values
            if column.type in _NATIVE.values()
            else [msgspec.to_builtins(value, enc_hook=str) for value in values]
        )
    if pa.types.is_floating(column.type):
        values = [None if value != value else value for value in values]
        if pa.types.is_integer(_arrow_type(_HINTS[name])):
            values = [int(v) if v is not None and v.is_integer() else v for v in values]
    return values


def _extra(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.MsgspecError, RecursionError):
        return value  # somebody else's column of that name: the row check says what was expected


# Writing


def write_parquet(file: IO[bytes], blocks: Iterable[Sequence[RequestRecord]]) -> int:
    """Write blocks of records as one Parquet file and return the number of rows."""
    writer: pq.ParquetWriter | None = None
    rows = 0
    schema = arrow_schema()
    native: dict[str, type] = {}
    for block in blocks:
        if writer is None:
            native = _native_extras(block)
            for name, kind in native.items():
                schema = schema.append(pa.field(name, _NATIVE[kind]))
            schema = schema.append(pa.field("extra", pa.string()))
            writer = pq.ParquetWriter(file, schema, compression="zstd", compression_level=9)
        writer.write_batch(_batch(block, native, schema))
        rows += len(block)
    if writer is None:
        writer = pq.ParquetWriter(file, schema, compression="zstd")
    writer.close()
    return rows


def _native_extras(block: Sequence[RequestRecord]) -> dict[str, type]:
    kinds: dict[str, set[type]] = {}
    for record in block:
        for name, value in record.extra.items():
            kinds.setdefault(name, set()).add(type(value))
    return {
        name: next(iter(found)) for name, found in sorted(kinds.items()) if len(found) == 1 and found <= _NATIVE.keys()
    }


def _batch(block: Sequence[RequestRecord], native: dict[str, type], schema: pa.Schema) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = dict(
        zip(
            RequestRecord.__struct_fields__,
            map(list, zip(*map(msgspec.structs.astuple, block), strict=True)),
            strict=True,
        )
    )
    rests: list[str | None] = []
    split: dict[str, list[Any]] = {name: [] for name in native}
    for extra in columns["extra"]:
        rest = dict(extra)
        for name, kind in native.items():
            fits = type(rest.get(name)) is kind and (kind is not int or rest[name] in _INT64)
            split[name].append(rest.pop(name) if fits else None)
        rests.append(msgspec.json.encode(rest).decode() if rest else None)
    columns.update(split, extra=rests)
    return pa.record_batch([pa.array(columns[f.name], type=f.type) for f in schema], schema=schema)
