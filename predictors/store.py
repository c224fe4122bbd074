"""States on disk: JSON, plain arrays and LightGBM text, checked by checksum before anything is parsed."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from laps_sd.errors import InputError, WorkError
from laps_sd.predictors.state import State

FORMAT = "laps-sd-bundle"
#: Raised when an older reader could misread a newer bundle.
SCHEMA_VERSION = 1
MANIFEST = "manifest.json"


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
    for name, check in manifest["files"].items():
        content = _checked(path, name, check)
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
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"bundle {path} cannot be read ({MANIFEST}: {error.strerror}); check its permissions"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"bundle {path} is damaged ({MANIFEST} is not JSON: {error}); train it again") from error
    if (
        not isinstance(manifest, dict)
        or manifest.get("format") != FORMAT
        or not isinstance(manifest.get("files"), dict)
    ):
        raise InputError(f"{file} is not the manifest of a laps-sd bundle; give the folder that `laps-sd train` wrote")
    version = manifest.get("schema_version")
    if not isinstance(version, int) or version < 1:
        raise InputError(f"bundle {path} is damaged (schema_version is {version!r}); train it again")
    if version > SCHEMA_VERSION:
        raise InputError(
            f"bundle {path} has schema version {version}, newer than {SCHEMA_VERSION}, the newest this laps-sd reads; "
            "upgrade laps-sd or train the bundle again"
        )
    return manifest


def _checked(path: Path, name: str, check: Any) -> bytes:
    if Path(name).name != name or "\0" in name or not isinstance(check, dict):
        raise InputError(f"bundle {path} is damaged (file entry {name!r}); train it again")
    try:
        if (path / name).stat().st_size != check.get("bytes"):  # also a pipe or a device, which would never end
            raise InputError(f"bundle {path} is damaged (size of {name} differs); copy or train it again")
        content = (path / name).read_bytes()
    except OSError as error:
        raise InputError(f"bundle {path} is damaged ({name}: {error.strerror}); train it again") from error
    if _sha256(content) != check.get("sha256"):
        raise InputError(f"bundle {path} is damaged (checksum of {name} differs); copy or train it again")
    return content


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
    head = json.loads(files["json"])
    arrays = {}
    if "npz" in files:
        with np.load(io.BytesIO(files["npz"]), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    texts = {name.removesuffix(".txt"): text.decode() for name, text in files.items() if name.endswith(".txt")}
    return State(head["kind"], head["meta"], arrays, texts)


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
