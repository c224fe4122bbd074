"""How a setting is declared, in one way everywhere: type, default, range, unit and meaning in one line.

    queues: Annotated[int, Setting("Number of queues.", low=1, high=10_000)] = 64

A dataclass calls `check` when it is built. In a pydantic model the range is enforced by the annotation itself. The
reference documentation, ``laps-sd config show`` and the messages of a refusal are made from the declarations.
"""

from dataclasses import dataclass
from math import inf
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler

_WORDS = {bool: "true or false", int: "a whole number", float: "a number"}


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
    above : float or None
        A lower bound that is itself not allowed, instead of ``low``.

    Examples
    --------
    >>> Setting("Weight of a step.", above=0, high=1).range
    'above 0 and at most 1'
    """

    meaning: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    above: float | None = None

    @property
    def range(self) -> str:
        """The range in words, empty where there is none."""
        low, high = self.low, self.high
        if self.above is not None:
            return f"above {_short(self.above)}" + (f" and at most {_short(high)}" if high is not None else "")
        if low is None:
            return "" if high is None else f"at most {_short(high)}"
        return f"{_short(low)} or more" if high is None else f"from {_short(low)} to {_short(high)}"

    def refuse(self, name: str, value: object) -> str | None:
        """One sentence that says why ``value`` cannot be, or None where it can."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not self.range:
            return None
        if (
            abs(value) != inf
            and (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and (self.above is None or value > self.above)
        ):
            return None
        return f"{name} must be {self.range}{f' {self.unit}' if self.unit else ''}, got {value}"

    def __get_pydantic_core_schema__(self, source: Any, handler: "GetCoreSchemaHandler") -> Any:
        """Let a pydantic model refuse what is out of range."""
        from pydantic import AfterValidator

        def within(value: Any) -> Any:
            if problem := self.refuse("value", value):
                raise ValueError(problem)
            return value

        return AfterValidator(within).__get_pydantic_core_schema__(source, handler)


def declared(kind: type) -> tuple[tuple[str, Any, Setting], ...]:
    """Return name, type and declaration of every declared setting of a class, in the order of its fields."""
    found = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if get_origin(hint) is Annotated:
            inner, *extras = get_args(hint)
            found += [(name, inner, extra) for extra in extras if isinstance(extra, Setting)]
    return tuple(found)


def check(instance: object) -> None:
    """Hold a dataclass instance to its declarations: the types of its plain settings, their choices and their ranges.

    Raises
    ------
    ValueError
        Names the setting, what it must be and the value.
    """
    owner: Any = type(instance)
    for name, kind, setting in declared(owner):
        value = getattr(instance, name)
        if problem := _wrong_kind(name, kind, value) or setting.refuse(name, value):
            raise ValueError(problem)


def _wrong_kind(name: str, kind: Any, value: object) -> str | None:
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        return None if value in choices else f"{name} must be {_either([str(c) for c in choices])}, got {value!r}"
    kinds = get_args(kind) or (kind,)
    if value is None and NoneType in kinds:
        return None
    plain = [k for k in kinds if k in _WORDS]
    if not plain or any(_is(k, value) for k in plain):
        return None
    return f"{name} must be {_either([_WORDS[k] for k in plain])}, got {value!r}"


def _is(kind: type, value: object) -> bool:
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    return isinstance(value, int if kind is int else int | float)


def _either(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _short(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"
