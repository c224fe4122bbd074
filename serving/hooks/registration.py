"""Registering hooks with SGLang, and making sure that they took: SGLang only logs a hook that fails."""

import inspect
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from laps_sd.errors import InputError
from laps_sd.serving.hooks.targets import Target

#: Our hook for each target, by the last part of the target's path.
Hooks = Mapping[str, Callable[..., object]]


def register_hooks(targets: tuple[Target, ...], hooks: Hooks) -> None:
    """Register the hook of every target; SGLang puts them in place when it has executed all plugins."""
    for target in targets:
        HookRegistry.register(target.path, hooks[target.name], HookType(target.kind))


def apply_hooks() -> None:
    """Put registered hooks in place; for hooks registered after SGLang has executed its plugins."""
    HookRegistry.apply_hooks()


def require_hooks(targets: tuple[Target, ...], hooks: Hooks) -> None:
    """Raise InputError unless every hook of ours is in place (none failed, or was shut out by another plugin)."""
    absent = [t.path for t in targets if not is_hooked(pkgutil.resolve_name(t.path), hooks[t.name])]
    if absent:
        raise InputError(
            f"another plugin holds {', '.join(absent)}; remove it (SGLANG_PLUGINS selects plugins by name)"
        )


def is_hooked(function: Callable[..., object], hook: Callable[..., object]) -> bool:
    """Whether ``hook`` is somewhere in the chain of wrappers around ``function``."""
    layer: Any = function.__func__ if inspect.ismethod(function) else function  # Any: whatever is hooked
    while layer is not None:
        if any(cell.cell_contents is hook for cell in getattr(layer, "__closure__", None) or ()):
            return True
        layer = vars(layer).get("__wrapped__")
    return False
