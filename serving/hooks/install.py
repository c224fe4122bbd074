"""Registering hooks with SGLang, and making sure that they took: SGLang only logs a hook that fails."""

import inspect
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from laps_sd.serving.hooks.targets import Target

Hooks = Mapping[str, Callable[..., Any]]


def register(targets: tuple[Target, ...], hooks: Hooks) -> None:
    """Register the hook of every target by the last part of its path; `load_plugins` or `apply` puts them in place."""
    for target in targets:
        HookRegistry.register(target.path, hooks[short_name(target)], HookType(target.kind))


def apply() -> None:
    """Put registered hooks in place; for hooks registered after SGLang has loaded its plugins."""
    HookRegistry.apply_hooks()


def missing(targets: tuple[Target, ...], hooks: Hooks) -> list[str]:
    """Paths of the targets on which our hook is *not* in place (failed, or shut out by another plugin)."""
    return [t.path for t in targets if not is_hooked(pkgutil.resolve_name(t.path), hooks[short_name(t)])]


def is_hooked(function: Any, hook: Callable[..., Any]) -> bool:
    """Whether ``hook`` is somewhere in the chain of wrappers around ``function``."""
    layer = function.__func__ if inspect.ismethod(function) else function
    while layer is not None:
        if any(cell.cell_contents is hook for cell in layer.__closure__ or ()):
            return True
        layer = vars(layer).get("__wrapped__")
    return False


def short_name(target: Target) -> str:
    """Name of the hooked function without its module and class."""
    return target.path.rpartition(".")[2]
