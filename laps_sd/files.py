"""Results on disk: refused before the work where they cannot be written, and then written whole or not at all.

Every room but the pure ``scheduler`` may use it: it imports nothing of ours but `errors`.
"""

import json
import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

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


def check_writable(path: Path) -> None:
    """Refuse a result file before the work begins, not after it.

    Raises
    ------
    InputError
        Nothing can be written there.
    """
    _probe(path, target_of(path).parent)


def check_folder(path: Path) -> None:
    """Refuse a folder for results before the work begins; it is made when there is something to put into it.

    Raises
    ------
    InputError
        There is something else of that name, or nothing can be written there.
    """
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is no folder; name one for the results")
    _probe(path, path.absolute())


def _probe(path: Path, folder: Path) -> None:
    try:
        with tempfile.NamedTemporaryFile(dir=next(place for place in (folder, *folder.parents) if place.exists())):
            pass
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error


def check_outputs(outputs: Iterable[Path | None], inputs: Iterable[Path | str | None] = ()) -> None:
    """Refuse result files that cannot be written, or that would take the place of an input or of each other.

    Raises
    ------
    InputError
        With the first such file.
    """
    read = {Path(os.path.realpath(path)) for path in inputs if path is not None}
    written: set[Path] = set()
    for path in outputs:
        if path is None:
            continue
        real = target_of(path)
        if real in read:
            raise InputError(f"{path} is read here and would be overwritten; name another file for the results")
        if real in written:
            raise InputError(f"{path} is named for two results; name a file for each")
        written.add(real)
        check_writable(path)


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write ``values`` as UTF-8 JSON; a reader never sees half of it. NaN is refused: unknown is null.

    Raises
    ------
    InputError, WorkError
        The file cannot be written.
    """
    write_text(path, json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
