"""What ``laps-sd doctor`` looks at: would a server with laps-sd start here, and if not, what to do."""

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from time import perf_counter

import laps_sd
from laps_sd.errors import LapsError
from laps_sd.serving.config import load_config
from laps_sd.serving.flags import DISABLE_ENV, POLICY, SUPPORTED_SGLANG
from laps_sd.serving.hooks.check import check_targets, check_version, installed_sglang
from laps_sd.serving.hooks.targets import ALL_TARGETS

_GROUP = "sglang.srt.plugins"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at; ``fix`` says what to do when it is not ok."""

    name: str
    ok: bool
    detail: str
    fix: str = ""


def examine(
    *, bundle: str | None = None, config: Path | None = None, args: Sequence[str] = (), url: str | None = None
) -> list[Check]:
    """Look at this environment.

    Parameters
    ----------
    bundle : str, optional
        Bundle folder or MLflow URI to try.
    config : Path, optional
        File for ``--laps-sd-config`` to try.
    args : sequence of str
        SGLang's launch arguments to try, without starting anything.
    url : str, optional
        Address of a running server: is laps-sd active there?
    """
    checks = [_versions(), _sglang(), _entry_point(), _kill_switch(), *_engine(args)]
    if config is not None:
        checks.append(_guarded("configuration", lambda: _config(config), "correct the file"))
    if bundle is not None:
        checks.append(_guarded("bundle", lambda: _bundle(bundle), "train a bundle with `laps-sd train`"))
    if url is not None:
        checks.append(_guarded("server", lambda: _server(url), "start it or correct the address"))
    return checks


def as_json(checks: Sequence[Check]) -> dict[str, object]:
    """JSON of ``laps-sd doctor``."""
    return {"ok": all(check.ok for check in checks), "checks": [asdict(check) for check in checks]}


def _guarded(name: str, look: Callable[[], Check], fix: str) -> Check:
    try:
        return look()
    except LapsError as error:
        return Check(name, False, str(error), fix)


def _versions() -> Check:
    found = [f"laps-sd {laps_sd.__version__}", f"Python {sys.version.split()[0]}"]
    for name in ("torch", "numpy", "lightgbm", "mlflow", "mlflow-skinny"):
        with contextlib.suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    return Check("versions", True, ", ".join(found))


def _sglang() -> Check:
    found = installed_sglang()
    wrong = check_version(found, allow_untested=False)
    supported = f"SGLang {found}; tested with {', '.join(SUPPORTED_SGLANG)}"
    return Check("sglang", wrong is None, wrong or supported, f"pip install sglang=={SUPPORTED_SGLANG[-1]}")


def _entry_point() -> Check:
    names = {entry.name for entry in entry_points(group=_GROUP)}
    allowed = os.environ.get("SGLANG_PLUGINS", "")
    if POLICY.replace("-", "_") not in names:
        return Check("plugin", False, "SGLang will not find the plugin", "install laps-sd into SGLang's environment")
    if allowed and "laps_sd" not in [name.strip() for name in allowed.split(",")]:
        return Check("plugin", False, f"SGLANG_PLUGINS={allowed} leaves it out", "add laps_sd to SGLANG_PLUGINS")
    return Check("plugin", True, f"plugins that SGLang will load: {', '.join(sorted(names))}")


def _kill_switch() -> Check:
    off = os.environ.get(DISABLE_ENV) == "1"
    detail = f"{DISABLE_ENV}=1: --schedule-policy laps-sd would serve fcfs" if off else f"{DISABLE_ENV} is not set"
    return Check("kill switch", not off, detail, f"unset {DISABLE_ENV}")


def _engine(args: Sequence[str]) -> list[Check]:
    """Run the checks that import SGLang, on the CPU stand-in where there is no real build."""
    if installed_sglang() is None:
        return [Check("hook targets", False, "SGLang is not installed", f"pip install sglang=={SUPPORTED_SGLANG[-1]}")]
    with _importable(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        mismatches = check_targets()
        tried = [_launch(args)] if args and not mismatches else []
    if mismatches:
        listed = "; ".join(str(mismatch) for mismatch in mismatches)
        return [Check("hook targets", False, listed, f"install SGLang {' or '.join(SUPPORTED_SGLANG)}")]
    return [Check("hook targets", True, f"all {len(ALL_TARGETS)} are as expected"), *tried]


def _importable() -> contextlib.AbstractContextManager[None]:
    from laps_sd.serving.cpu import guard, launch

    if any(guard.real_build(name) is not None for name in guard.REAL_BUILDS):
        return contextlib.nullcontext()
    return launch.importable()


def _launch(args: Sequence[str]) -> Check:
    """Parse SGLang's arguments with its own parser and ask what would refuse them."""
    import argparse

    from sglang.srt.server_args import ServerArgs

    from laps_sd.serving.flags import POLICY, add_flags, flags_alone
    from laps_sd.serving.launch import read_launch
    from laps_sd.serving.preflight import refusal

    parser = argparse.ArgumentParser(prog="sglang serve", exit_on_error=False)
    ServerArgs.add_cli_args(parser)
    if "--laps-sd-bundle" not in parser.format_help():
        add_flags(parser)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parsed = parser.parse_args(list(args))
    except (SystemExit, argparse.ArgumentError) as error:
        detail = str(error) if isinstance(error, argparse.ArgumentError) else said.getvalue().strip().splitlines()[-1]
        return Check("launch arguments", False, detail, "correct the arguments")
    wrong = flags_alone(parsed) or refusal(parsed)
    if wrong is None and parsed.schedule_policy == POLICY:
        try:
            read_launch(parsed)
        except LapsError as error:
            wrong = str(error)
    return Check("launch arguments", wrong is None, wrong or "nothing would refuse to start", "see the reason")


def _config(path: Path) -> Check:
    load_config(path)
    return Check("configuration", True, f"{path} is valid")


def _bundle(name: str) -> Check:
    from laps_sd.data import PromptRequest
    from laps_sd.serving.launch import load_bundle

    bundle = load_bundle(name)
    bundle.predict_one(PromptRequest(prompt="warm up"))
    started = perf_counter()
    prediction = bundle.predict_one(PromptRequest(prompt="Name three rivers.", prompt_tokens=6))
    took = 1e3 * (perf_counter() - started)
    return Check("bundle", True, f"{name} predicts {prediction.length.mean():.0f} tokens for a test in {took:.1f} ms")


def _server(url: str) -> Check:
    from laps_sd.serving.bench.url import ask_server

    server = ask_server(url.rstrip("/"))
    detail = f"{url} schedules with {server.policy}"
    if server.plugin and server.policy != POLICY:
        detail += ", ranked by laps-sd"
    if server.served is not None:
        detail += f"; {server.served.of_bundle()}, SGLang {server.served.sglang}"
    return Check("server", server.plugin, detail, "start it with --schedule-policy laps-sd")
