"""The installed SGLang against the table of targets.

An upgrade that renames or re-orders a parameter must be noticed before the first request, not by a wrong schedule.
"""

import ast
import inspect
import pkgutil
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from laps_sd.serving.flags import SUPPORTED_SGLANG
from laps_sd.serving.hooks.targets import ALL_TARGETS, Target


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A target that is not what the table says; ``found`` says what is there instead."""

    target: Target
    found: str

    def __str__(self) -> str:
        """Return the path with what was expected and what was found."""
        return f"{self.target.path}: expected {', '.join(self.target.names)}; found {self.found}"


def installed_sglang() -> str | None:
    """Version of the installed SGLang, or None where there is none."""
    try:
        return version("sglang")
    except PackageNotFoundError:
        return None


def check_version(found: str | None, *, allow_untested: bool) -> str | None:
    """One sentence that says why this SGLang cannot be used, or None when it can."""
    supported = ", ".join(SUPPORTED_SGLANG)
    if found is None:
        return f"SGLang is not installed; install sglang=={SUPPORTED_SGLANG[-1]}"
    if found in SUPPORTED_SGLANG or allow_untested:
        return None
    return (
        f"SGLang {found} is installed but laps-sd is tested with {supported}; install sglang=={SUPPORTED_SGLANG[-1]} "
        "or, once `laps-sd doctor` finds every hook target unchanged, set allow_untested_sglang: true in "
        "--laps-sd-config"
    )


def check_targets(targets: Iterable[Target] = ALL_TARGETS) -> list[Mismatch]:
    """Compare every target with the installed SGLang.

    Returns
    -------
    list of Mismatch
        Empty when the plugin can be active. Importing SGLang's scheduler takes seconds the first time.
    """
    return [Mismatch(target, found) for target in targets if (found := difference(target)) is not None]


def difference(target: Target) -> str | None:
    """Return what the installed SGLang has in place of ``target``; None where it is as expected."""
    try:
        found: object = pkgutil.resolve_name(target.path)
    except (ImportError, AttributeError) as error:
        return f"nothing ({error})"
    if target.kind == "class":
        return None if isinstance(found, type) else f"no class but {type(found).__name__}"
    if target.kind == "attributes":
        if not isinstance(found, type):
            return f"no class but {type(found).__name__}"
        missing = [name for name in target.names if name not in attributes_of(found)]
        return f"no attribute {', '.join(missing)}" if missing else None
    if not callable(found):
        return f"no function but {type(found).__name__}"
    names = parameters_of(found)
    if target.kind == "call":  # further parameters with defaults do not disturb a caller
        return None if _callable_with(found, target.names) else f"({', '.join(names)})"
    return None if tuple(names) == target.names else f"({', '.join(names)})"


def parameters_of(function: Callable[..., object]) -> Sequence[str]:
    """Parameter names in order, ``self`` and ``cls`` included, seen through wrappers."""
    return list(inspect.signature(inspect.unwrap(getattr(function, "__func__", function))).parameters)


@cache
def attributes_of(cls: type) -> set[str]:
    """Names that a class or its bases define or assign to ``self`` anywhere in their source."""
    names: set[str] = set()
    for base in cls.__mro__[:-1]:
        names.update(vars(base), getattr(base, "__annotations__", {}))
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError):  # written in C, as msgspec's base class: it has what `vars` shows
            continue
        names.update(
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        )
    return names


def _callable_with(function: Callable[..., object], names: Sequence[str]) -> bool:
    """Whether a call with parameters of these names, in this order, is still understood."""
    parameters = inspect.signature(inspect.unwrap(function)).parameters
    optional = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    required = {name for name, p in parameters.items() if p.default is p.empty and p.kind not in optional}
    return [name for name in parameters if name in names] == list(names) and required <= set(names)
