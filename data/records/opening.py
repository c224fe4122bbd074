"""Open a file however it is wrapped: plain, gzip or Zstandard, told apart by its first bytes and not by its name."""

import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from laps_sd.errors import InputError

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
PARQUET_MAGIC = b"PAR1"

_BLOCK = 1 << 20
_BITE = 4 << 10


class DamagedFileError(Exception):
    """The compressed stream ends early or does not decompress; the text says which."""


class _Decompressing(io.RawIOBase):
    """Bytes of a compressed file, member after member.

    The standard ``gzip`` and ``zstandard`` readers disagree about a file that was cut: one raises, the other ends
    quietly. Here both are a :class:`DamagedFileError`.
    """

    def __init__(self, file: BinaryIO, kind: str) -> None:
        self._file = file
        self._kind = kind
        self._engine = _engine(kind)
        self._inside = False  # of a member: a clean file ends outside
        self._pending = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        while not self._pending:
            # Small bites: a few kilobytes may unpack to megabytes.
            block = self._file.read(_BITE)
            if not block:
                if self._inside:
                    raise DamagedFileError(f"the {self._kind} stream ends in the middle")
                return 0
            self._pending = self._decompress(block)
        size = min(len(buffer), len(self._pending))
        buffer[:size] = self._pending[:size]
        self._pending = self._pending[size:]
        return size

    def _decompress(self, block: bytes) -> bytes:
        out = []
        while block:
            self._inside = True
            try:
                out.append(self._engine.decompress(block))
            except (zlib.error, _zstd_error()) as error:
                raise DamagedFileError(f"the {self._kind} stream is damaged ({error})") from error
            if not self._engine.eof:
                break
            block = self._engine.unused_data
            self._engine = _engine(self._kind)
            self._inside = False
            if self._kind == "gzip":
                block = block.lstrip(b"\0")  # padding between members is allowed
        return b"".join(out)


def _engine(kind: str) -> "zlib._Decompress":
    if kind == "gzip":
        return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj()  # type: ignore[return-value]


def _zstd_error() -> type[Exception]:
    import zstandard

    return zstandard.ZstdError


@contextmanager
def open_bytes(path: Path) -> Iterator[io.BufferedReader]:
    """Open ``path`` for reading its decompressed bytes.

    Raises
    ------
    InputError
        There is no such file, it is a folder, or it may not be read.
    DamagedFileError
        While reading: a compressed stream is cut or damaged.
    """
    if path.is_dir():
        raise InputError(f"{path}: expected a file, found a folder; name one of its files")
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; check the name") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be opened ({error.strerror}); check its permissions") from None
    with file:
        start = file.peek(4)[:4]
        kind = "gzip" if start.startswith(GZIP_MAGIC) else "zstd" if start == ZSTD_MAGIC else None
        if kind is None:
            yield file
        else:
            yield io.BufferedReader(_Decompressing(file, kind), _BLOCK)
