"""How a server on the CPU stand-in is started: its checks, its environment, its defaults."""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from laps_sd.errors import InputError, WorkError
from laps_sd.serving.cpu import guard
from laps_sd.serving.flags import SUPPORTED_SGLANG

COMPILERS = (os.environ.get("CXX", "c++"), "g++")
STANDINS = Path(__file__).resolve().parent / "standins"

#: SGLang's own flags with the values that suit two cores and a small model. An argument of the caller wins.
DEFAULTS: dict[str, str | None] = {
    "--device": "cpu",
    "--host": "127.0.0.1",
    # float32: the matrix library then rounds alike whatever the batch, and greedy decoding repeats token for token.
    "--dtype": "float32",
    "--context-length": "2048",
    "--max-total-tokens": "16384",
    # Of the memory that is free at the start; what other processes take meanwhile must not make it fail, and the pool
    # is bounded by --max-total-tokens anyway.
    "--mem-fraction-static": "0.9",
    "--disable-cuda-graph": None,
    # Nodes of NGRAM's trie, up to 18 a token, allocated at the start: SGLang's ten million take 2 GB.
    "--speculative-ngram-capacity": "2000000",
    # Without it the scheduler spins a full core while it has nothing to do.
    "--sleep-on-idle": None,
}


def check(args: Sequence[str] = ()) -> None:
    """Refuse an environment in which the stand-in must not or cannot act.

    Parameters
    ----------
    args
        SGLang's arguments: NGRAM needs a compiler.

    Raises
    ------
    WorkError
        No SGLang, another version of it, no torch, a real sgl-kernel build, or no compiler for NGRAM.
    """
    try:
        found = version("sglang")
    except PackageNotFoundError:
        raise WorkError("SGLang is not installed; run `make .venv` in the repository of laps-sd") from None
    if found not in SUPPORTED_SGLANG:  # the stand-in supplies exactly what these call
        raise WorkError(
            f"the CPU stand-in supports SGLang {', '.join(SUPPORTED_SGLANG)}, but {found} is installed; "
            f"run `pip install --no-deps sglang=={SUPPORTED_SGLANG[-1]}`"
        )
    try:
        version("torch")
    except PackageNotFoundError:
        raise WorkError("torch is not installed; run `make .venv` in the repository of laps-sd") from None
    if (real := guard.real_build("sgl_kernel")) is not None:
        raise WorkError(
            f"{real} is installed, so the CPU stand-in does not act; start SGLang itself (sglang serve) "
            "or use the CPU environment that `make .venv` builds"
        )
    if value_of("--speculative-algorithm", args) == "NGRAM" and not any(map(shutil.which, COMPILERS)):
        raise WorkError("NGRAM compiles its trie at first use, and there is no C++ compiler; install g++")


def environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables of the server's process tree: ``base`` (default: this process's) and what the CPU needs.

    Stand-ins go in front of ``PYTHONPATH`` only for modules that have no real build installed.
    """
    env = dict(os.environ if base is None else base)
    folders = [str(STANDINS / name) for name in guard.REAL_BUILDS if guard.real_build(name) is None]
    inherited = [p for p in env.get("PYTHONPATH", "").split(os.pathsep) if p and p not in folders]
    env["PYTHONPATH"] = os.pathsep.join([*folders, *inherited])
    env[guard.ACTIVE] = "1"
    env["SGLANG_USE_CPU_ENGINE"] = "1"
    # torch's inductor would ask the triton placeholder for a compiler; starting without it is also faster.
    env["TORCHDYNAMO_DISABLE"] = "1"
    # Two OpenMP threads and one busy neighbour cost a factor of ten: the threads wait for each other in barriers.
    env.setdefault("OMP_NUM_THREADS", "1")
    env.setdefault("HF_HUB_OFFLINE", "1")
    # Keep freed memory: handing megabytes of activations back to the kernel after each operation, and faulting them in
    # again, costs up to half of an attention call.
    env.setdefault("MALLOC_MMAP_THRESHOLD_", str(1 << 30))
    env.setdefault("MALLOC_TRIM_THRESHOLD_", str(4 << 30))
    # NGRAM compiles its trie with ninja at first use: the one of this environment counts too.
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
    return env


@contextmanager
def importable() -> Iterator[None]:
    """Let this very process import SGLang on the stand-ins (tests, tools); what was imported stays so afterwards."""
    env = environment()
    added = [p for p in env["PYTHONPATH"].split(os.pathsep) if p.startswith(str(STANDINS)) and p not in sys.path]
    names = (guard.ACTIVE, "SGLANG_USE_CPU_ENGINE", "TORCHDYNAMO_DISABLE")
    before = {name: os.environ.get(name) for name in names}
    sys.path[:0] = added
    os.environ.update({name: env[name] for name in names})
    try:
        yield
    finally:
        for folder in added:
            sys.path.remove(folder)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def with_model(args: Sequence[str]) -> list[str]:
    """SGLang's arguments ``args``, with the demo model where they name no model (nor ask for help only).

    The demo model gets its own draft for STANDALONE where they name no draft.

    Raises
    ------
    InputError
        The model folder is missing or holds no model. Names of a hub are refused too: the CPU server is offline.
    """
    from laps_sd.serving.cpu.model import demo_model, draft_model

    if {"-h", "--help", "--config"} & {arg.split("=", 1)[0] for arg in args}:
        return list(args)
    for flag in ("--speculative-draft-model-path", "--speculative-draft-model"):
        if (draft := value_of(flag, args)) is not None:
            require_model(Path(draft))
    named = value_of("--model-path", args) or value_of("--model", args)
    if named is not None:
        require_model(Path(named))
        return list(args)
    drafts = value_of("--speculative-algorithm", args) == "STANDALONE"
    if drafts and value_of("--speculative-draft-model-path", args) is None:
        args = ["--speculative-draft-model-path", str(draft_model()), *args]
    return ["--model-path", str(demo_model()), *args]


def require_model(folder: Path) -> None:
    """Raise :class:`InputError` unless ``folder`` holds a model."""
    if not folder.is_dir():
        raise InputError(f"the model folder {folder} does not exist; name a folder with config.json and weights")
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder} is not a model: it holds no config.json")


def command(args: Sequence[str]) -> list[str]:
    """Return the command line of SGLang's server on the CPU."""
    return [sys.executable, "-m", "sglang.launch_server", *with_defaults(args)]


def value_of(flag: str, args: Sequence[str]) -> str | None:
    """Return what ``flag VALUE`` or ``flag=VALUE`` sets in ``args``, the last one as in argparse; None: nothing."""
    found = None
    for place, arg in enumerate(args):
        name, equals, value = arg.partition("=")
        if name == flag:
            found = value if equals else next(iter(args[place + 1 : place + 2]), None)
    return found


def with_defaults(args: Sequence[str]) -> list[str]:
    """SGLang's arguments ``args``, completed by those of :data:`DEFAULTS` that they do not set."""
    given = {arg.split("=", 1)[0] for arg in args}
    completed = list(args)
    for flag, value in DEFAULTS.items():
        if flag not in given:
            completed += [flag] if value is None else [flag, value]
    return completed
