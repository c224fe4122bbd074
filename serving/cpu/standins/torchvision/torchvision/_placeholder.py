"""Names that can be imported and must not be called."""

from collections.abc import Callable
from typing import NoReturn


class Missing:
    """Stands for a class or function of torchvision."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError(f"torchvision.{self.name}: the CPU stand-in of laps-sd has a placeholder only")


def names(module: str) -> Callable[[str], Missing]:
    """The ``__getattr__`` of a placeholder module."""

    def __getattr__(name: str) -> Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{module}.{name}")

    return __getattr__
