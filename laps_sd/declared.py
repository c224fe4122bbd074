"""How a setting is declared, in one way everywhere: type, default, range, unit and meaning in one line.

    queues: Annotated[int, Setting("Number of queues.", low=1, high=10_000)] = 64

A dataclass calls `check` when it is built. In a pydantic model the range is enforced by the annotation itself. The
reference documentation, ``laps-sd config show`` and the messages of a refusal are made from the declarations.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


@dataclass(frozen=True, slots=True)
class Setting:
    """Meaning, unit and range of one setting.

    Attributes
    ----------
    meaning : str
        One or two sentences for whoever sets it.
    unit : str
        What a number counts, for instance ``verify steps``; empty where there is nothing to count.
    low, high : float or None
        The range, both ends included; None: no bound.
    """

    meaning: str
    unit: str = ""
    low: float | None = None
    high: float | None = None

    @property
    def range(self) -> str:
        """The range in words, empty where there is none."""
        if self.low is None and self.high is None:
            return ""
        if self.high is None:
            return f"{self.low:g} or more"
        if self.low is None:
            return f"at most {self.high:g}"
        return f"{self.low:g} to {self.high:g}"

    def refuse(self, name: str, value: object) -> str | None:
        """One sentence that says why ``value`` cannot be, or None where it can."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not self.range:
            return None
        within = isfinite(value) and (self.low is None or value >= self.low)
        if within and (self.high is None or value <= self.high):
            return None
        return f"{name} must be {self.range}{f' {self.unit}' if self.unit else ''}, got {value}"

    def __get_pydantic_core_schema__(self, source: Any, handler: "GetCoreSchemaHandler") -> "CoreSchema":
        """Let a pydantic model refuse what is out of range."""
        from pydantic_core import core_schema

        def within(value: Any) -> Any:
            if problem := self.refuse("value", value):
                raise ValueError(problem)
            return value

        return core_schema.no_info_after_validator_function(within, handler(source))


def declared(kind: type) -> Iterator[tuple[str, Any, Setting]]:
    """Yield name, type and declaration of every declared setting of a class, in the order of its fields."""
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if get_origin(hint) is Annotated:
            inner, *extras = get_args(hint)
            for extra in extras:
                if isinstance(extra, Setting):
                    yield name, inner, extra


def check(instance: object) -> None:
    """Hold a dataclass instance to its declarations.

    Raises
    ------
    ValueError
        Names the setting, its range and the value.
    """
    for name, kind, setting in declared(type(instance)):
        value = getattr(instance, name)
        if get_origin(kind) is Literal and value not in get_args(kind):
            raise ValueError(f"{name} must be one of {', '.join(map(str, get_args(kind)))}, got {value!r}")
        if problem := setting.refuse(name, value):
            raise ValueError(problem)
