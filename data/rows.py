"""A row of some file on its way to a record."""

from typing import Any, NamedTuple


class Row(NamedTuple):
    """A row before it is checked, and how its place in the file is told."""

    unit: str  # "line", "row" or "item"
    number: int  # from 1
    value: Any
