"""Placeholder for triton: kernels can be defined, launching one raises.

SGLang imports triton in hundreds of modules, and none of its kernels runs on a CPU; the real package weighs 900 MB.
Every ``triton.x.y`` imports, and every attribute is a placeholder.
"""

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from typing import NoReturn

from laps_sd.serving.cpu.guard import require_standin

require_standin("triton")
__version__ = "3.8.0"


class _Thing:
    """Stands for a type, constant, decorator or function that nobody uses on a CPU."""

    def __init__(self, name: str) -> None:
        self.__name__ = self._name = name

    def __getattr__(self, attr: str) -> "_Thing":
        if attr.startswith("__"):
            raise AttributeError(attr)
        return _Thing(f"{self._name}.{attr}")

    def __call__(self, *_: object, **__: object) -> NoReturn:
        raise RuntimeError(f"{self._name}: this is the triton placeholder of the CPU stand-in of laps-sd")

    def __or__(self, other: object) -> "_Thing":
        return self

    __ror__ = __or__

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return ()

    def __repr__(self) -> str:
        return f"<placeholder {self._name}>"


class _Kernel:
    """A kernel that was defined and must not be launched."""

    def __init__(self, fn: Callable[..., object]) -> None:
        self.fn, self.__name__, self.__doc__ = fn, fn.__name__, fn.__doc__
        self.arg_names = fn.__code__.co_varnames[: fn.__code__.co_argcount]

    def __getitem__(self, grid: object) -> NoReturn:
        raise RuntimeError(f"triton kernel {self.__name__} launched, but the CPU stand-in of laps-sd has none")

    def __call__(self, *_: object, **__: object) -> NoReturn:
        self[None]


def jit(fn: Callable[..., object] | None = None, **_: object) -> object:
    """Mark a kernel, with or without options, as triton's decorator does."""
    return _Kernel if fn is None else _Kernel(fn)


def _transparent(*_: object, **__: object) -> Callable[[object], object]:
    return lambda kernel: kernel


autotune = heuristics = _transparent


class Config:
    """Tuning options; kept, never read."""

    def __init__(self, kwargs: dict[str, object] | None = None, **options: object) -> None:
        self.kwargs = kwargs or {}
        self.__dict__.update(options)


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(n - 1, 0).bit_length()


class _Hooks(list[object]):
    add = list.append


class _Constexpr:
    def __init__(self, value: object = None) -> None:
        self.value = value


def _placeholders(module: str) -> Callable[[str], object]:
    """The ``__getattr__`` of a placeholder module."""

    def __getattr__(name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "jit":
            return jit
        if name[:1].isupper():  # a class: it may be subclassed or named in an annotation
            return type(name, (), {"__module__": module})
        return _Thing(f"{module}.{name}")

    return __getattr__


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes every submodule of triton importable."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.startswith("triton."):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        given: dict[str, dict[str, object]] = {
            "triton.language": {"constexpr": _Constexpr, "core": _Thing("triton.language.core")},
            # SGLang registers a watcher for kernels that load late; none ever does.
            "triton.knobs": {"runtime": types.SimpleNamespace(kernel_load_start_hook=_Hooks())},
            # torch asks whether triton has a backend for the CPU.
            "triton.backends": {"backends": {}},
        }
        module.__dict__.update(given.get(spec.name, {}), __getattr__=_placeholders(spec.name))
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run: :meth:`create_module` filled it."""


__getattr__ = _placeholders("triton")
sys.meta_path.append(_Finder())
from . import backends, knobs, language  # noqa: E402, F401  (reached as attributes after `import triton`)
