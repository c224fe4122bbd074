"""States on disk: JSON, plain arrays and LightGBM text, checked by checksum before anything is parsed."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from laps_sd.errors import InputError, WorkError
from laps_sd.predictors.state import State

FORMAT = "laps-sd-bundle"
#: Raised when an older reader could misread a newer bundle.
SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
#: Bytes of all files together, of the manifest, and of a file of JSON, which takes ten times as much once it is read.
MOST_BYTES, MOST_MANIFEST, MOST_JSON = 2**31, 2**24, 2**26
#: Files of a bundle, and arrays in one of them: an encoder has some hundreds.
MOST_FILES, MOST_ARRAYS = 64, 10_000
#: Numbers beyond this are none that training gives; sums and squares of smaller ones stay finite.
MOST_VALUE = 1e30


def write_folder(path: Path, states: Mapping[str, State], manifest: Mapping[str, Any]) -> None:
    """Write states and manifest to the folder ``path``: all of it or nothing, replacing an older bundle.

    Raises
    ------
    WorkError
        It cannot be written, as on a full disk.
    """
    path = path.resolve()  # a link keeps pointing there, and "." has a parent
    check_target(path)
    work = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        files = {name: content for part, state in states.items() for name, content in _files(part, state).items()}
        for name, content in files.items():
            (work / name).write_bytes(content)
        checks = {name: {"sha256": _sha256(content), "bytes": len(content)} for name, content in files.items()}
        head = {"format": FORMAT, "schema_version": SCHEMA_VERSION, **manifest, "files": checks}
        (work / MANIFEST).write_text(json.dumps(head, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        work.chmod(0o755)
        _swap(work, path)
    except BaseException as error:
        shutil.rmtree(work, ignore_errors=True)
        if isinstance(error, OSError):
            raise WorkError(f"bundle {path} cannot be written: {error.strerror}") from error
        raise


def check_target(path: Path) -> None:
    """Refuse a place where no bundle can be written, before any work is done for it.

    Raises
    ------
    InputError
        Something that is no bundle stands there, a bundle with files of somebody else's in it, or nothing can be
        written.
    """
    path = path.resolve()
    try:
        _refuse_other_files(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent):
            pass
    except OSError as error:
        raise InputError(f"no bundle can be written to {path}: {error.strerror}") from error


def _refuse_other_files(path: Path) -> None:
    """Replacing a bundle removes its folder: nothing that no bundle wrote may be in it."""
    if not path.exists():
        return
    there = {entry.name for entry in path.iterdir()} if path.is_dir() else {path.name}
    if not there:
        return
    try:
        ours = {MANIFEST, *read_manifest(path)["files"]}
    except InputError:
        raise InputError(f"{path} exists and is not a bundle; choose another place for the bundle") from None
    if others := sorted(there - ours):
        raise InputError(
            f"{path} holds more than a bundle ({others[0]!r}), which would be lost; "
            "move that away, or choose another place for the bundle"
        )


def read_folder(path: Path) -> tuple[dict[str, State], dict[str, Any]]:
    """Read a bundle folder.

    Raises
    ------
    InputError
        No bundle there, damaged, or written by a newer version: one sentence with the reason.
    """
    manifest = read_manifest(path)
    parts: dict[str, dict[str, bytes]] = {}
    left = MOST_BYTES
    if len(manifest["files"]) > MOST_FILES:
        raise InputError(f"bundle {path} is damaged (it names {len(manifest['files'])} files); train it again")
    for name, check in manifest["files"].items():
        content = _checked(path, name, check, MOST_JSON if name.endswith(".json") else left)
        left -= len(content)
        part, _, rest = name.partition(".")
        parts.setdefault(part, {})[rest] = content
    try:
        return {part: _state(files) for part, files in parts.items()}, manifest
    except Exception as error:  # whatever a parser makes of a file with a true checksum and false content
        raise InputError(f"bundle {path} cannot be read ({error!r}); train it again") from error


def read_manifest(path: Path) -> dict[str, Any]:
    """Read and check a bundle's manifest only."""
    file = path / MANIFEST
    if not file.is_file():
        raise InputError(f"{path} is not a bundle (no {MANIFEST} in it); make one with `laps-sd train --out {path}`")
    try:
        manifest = _json(_read(file, None, MOST_MANIFEST))
    except OSError as error:
        raise InputError(
            f"bundle {path} cannot be read ({MANIFEST}: {error.strerror}); check its permissions"
        ) from error
    except _UnexpectedFileError as error:
        raise InputError(f"bundle {path} cannot be read ({MANIFEST} {error}); copy or train it again") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"bundle {path} is damaged ({MANIFEST} is not JSON: {error}); train it again") from error
    if (
        not isinstance(manifest, dict)
        or manifest.get("format") != FORMAT
        or not isinstance(manifest.get("files"), dict)
    ):
        raise InputError(f"{file} is not the manifest of a laps-sd bundle; give the folder that `laps-sd train` wrote")
    version = manifest.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InputError(f"bundle {path} is damaged (schema_version is {version!r}); train it again")
    if version > SCHEMA_VERSION:
        raise InputError(
            f"bundle {path} has schema version {version}, newer than {SCHEMA_VERSION}, the newest this laps-sd reads; "
            "upgrade laps-sd or train the bundle again"
        )
    return manifest


class _UnexpectedFileError(Exception):
    """A file is of another kind or size than it must be; the message goes on after the file's name."""


def _checked(path: Path, name: str, check: Any, most: int) -> bytes:
    if Path(name).name != name or "\0" in name or not isinstance(check, dict):
        raise InputError(f"bundle {path} is damaged (file entry {name!r}); train it again")
    try:
        content = _read(path / name, check.get("bytes"), most)
    except _UnexpectedFileError as error:
        raise InputError(f"bundle {path} is damaged ({name} {error}); copy or train it again") from error
    except OSError as error:
        raise InputError(f"bundle {path} is damaged ({name}: {error.strerror}); train it again") from error
    if _sha256(content) != check.get("sha256"):
        raise InputError(f"bundle {path} is damaged (checksum of {name} differs); copy or train it again")
    return content


def _read(file: Path, size: Any, most: int) -> bytes:
    """Read a regular file of ``size`` bytes (any when None) and at most ``most``.

    A link would let a bundle read what is not its own, and a pipe or a device would never end.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0))
    except OSError as error:
        if file.is_symlink():
            raise _UnexpectedFileError("is a link, which is not followed") from error
        raise
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise _UnexpectedFileError("is no regular file")
        if size is not None and found.st_size != size:
            raise _UnexpectedFileError("has another size than the manifest says")
        if found.st_size > most:
            raise _UnexpectedFileError(f"has {found.st_size:,} bytes, more than {most:,}")
        return stream.read(found.st_size)


def _json(content: bytes) -> Any:
    """Read JSON in which every number is finite; ValueError and RecursionError say what is wrong."""

    def refuse(word: str) -> float:
        raise ValueError(f"{word} is not a number")

    def finite(text: str) -> float:
        number = float(text)
        return number if np.isfinite(number) else refuse(text[:20])

    return json.loads(content.decode("utf-8"), parse_constant=refuse, parse_float=finite)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _files(part: str, state: State) -> dict[str, bytes]:
    head = {"kind": state.kind, "meta": state.meta}
    files = {f"{part}.json": json.dumps(head, ensure_ascii=False, allow_nan=False).encode()}
    if state.arrays:
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **dict(state.arrays))
        files[f"{part}.npz"] = buffer.getvalue()
    for name, text in state.texts.items():
        files[f"{part}.{name}.txt"] = text.encode()
    return files


def _state(files: Mapping[str, bytes]) -> State:
    head = _json(files["json"])
    arrays = _arrays(files["npz"]) if "npz" in files else {}
    texts = {name.removesuffix(".txt"): text.decode() for name, text in files.items() if name.endswith(".txt")}
    if not isinstance(head["kind"], str) or not isinstance(head["meta"], dict):
        raise ValueError("its JSON says no kind or no values")
    return State(head["kind"], head["meta"], arrays, texts)


def _arrays(content: bytes) -> dict[str, NDArray[Any]]:
    """Read plain arrays that ``np.savez`` wrote.

    ``np.load`` would expand what is compressed without a bound, and allocate what a header asks for before it looks
    whether it is there. Here nothing is compressed, and an array has as many bytes as its header says.
    """
    arrays: dict[str, NDArray[Any]] = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
        if len(entries) > MOST_ARRAYS or sum(entry.file_size for entry in entries) > len(content):
            raise ValueError("its arrays are larger than their file")
        for entry in entries:
            name = entry.filename.removesuffix(".npy")
            if entry.compress_type != zipfile.ZIP_STORED or name == entry.filename or name in arrays:
                raise ValueError(f"the array {entry.filename[:60]!r} is compressed, there twice or none")
            arrays[name] = _array(archive.read(entry), name)
    return arrays


def _array(content: bytes, name: str) -> NDArray[Any]:
    stream = io.BytesIO(content)
    version = npy.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"the array {name[:60]!r} has an unknown form")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, by_columns, kind = read(stream)
    place = stream.tell()
    if kind.hasobject or kind.kind not in "fiu" or any(not 0 <= n <= 2**31 for n in shape):
        raise ValueError(f"the array {name[:60]!r} does not hold plain numbers")
    if math.prod(shape) * kind.itemsize != len(content) - place:
        raise ValueError(f"the array {name[:60]!r} has another size than its header says")
    values = np.frombuffer(content, kind, offset=place).reshape(shape, order="F" if by_columns else "C").copy(order="K")
    if kind.kind == "f" and values.size and not float(np.abs(values).max()) <= MOST_VALUE:  # also what is no number
        raise ValueError(f"the array {name[:60]!r} holds what is not a finite number")
    return values


def _swap(work: Path, path: Path) -> None:
    """Put ``work`` in the place of ``path``; a folder cannot be replaced in one call, so the old one steps aside."""
    if not path.exists():
        work.rename(path)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent))
    try:
        path.replace(old)
        work.rename(path)
    except BaseException:
        if not path.exists():
            old.replace(path)
        raise
    shutil.rmtree(old, ignore_errors=True)
