"""Files that appear whole or not at all.

A leaf, like `errors`: every room but the pure ``scheduler`` may use it.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from laps_sd.errors import InputError, WorkError


def target_of(path: Path) -> Path:
    """Return the file that writing to ``path`` replaces: where it leads once links are followed.

    Raises
    ------
    InputError
        A folder, a device or a pipe is there, or it is no name: too long, or a link that leads back to itself.
    """
    try:
        real = path.resolve()
        if real.is_dir():
            raise InputError(f"{path} is a folder; name a file")
        if real.exists() and not real.is_file():
            # A written file takes the place of what was there: root would replace /dev/null for everybody.
            raise InputError(f"{path} is a device or a pipe; name a file")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error
    except (RuntimeError, ValueError) as error:  # links in a circle; a NUL in the name
        raise InputError(f"{path} cannot be written: {error}") from error
    return real


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary sibling of ``path`` for writing that takes its place when the block ends without an error.

    Missing folders are made. Where ``path`` is a link, the file that it points to is replaced and the link stays.

    Raises
    ------
    InputError
        ``path`` is a folder, a device or a pipe, or nothing can be written there.
    WorkError
        Writing failed half way, for instance because the disk is full; what was there before is untouched.
    """
    real = target_of(path)
    temporary = real.with_name(f".{secrets.token_hex(8)}.tmp")  # whatever the length of the name
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        file = temporary.open("wb")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error
    try:
        with file:
            yield file
        temporary.replace(real)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise WorkError(f"{path} cannot be written: {error.strerror or error}") from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8, whole or not at all; a lone surrogate of a file's name is written as an escape.

    Raises
    ------
    InputError, WorkError
        As `replacing`.
    """
    with replacing(path) as file:
        file.write(text.encode(errors="backslashreplace"))
