"""Feature sets and predictors by the name under which they are registered (`laps_sd.extensions`)."""

from __future__ import annotations

from typing import TypeVar

from laps_sd.errors import InputError
from laps_sd.extensions import Registry

Kind = TypeVar("Kind")


def registered(table: Registry, name: str, base: type[Kind]) -> type[Kind]:
    """Return the class that is registered under a name.

    Parameters
    ----------
    table : Registry
        `laps_sd.extensions.FEATURES`, ``LENGTH_PREDICTORS`` or ``ACCEPTANCE_PREDICTORS``.
    name : str
    base : type
        What it must be derived from.

    Raises
    ------
    InputError
        There is no such name, or what is registered under it is no such class.
    """
    try:
        found = table.load(name)
    except ValueError as error:
        raise InputError(str(error)) from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise InputError(f"{table.kind} {name!r} is registered as {found!r}, which is no class derived from {base}")
    kind = getattr(found, "kind", None)
    if kind != name:
        raise InputError(f"{table.kind} {name!r} is registered for a class whose `kind` is {kind!r}; make them equal")
    return found


def trained_with(table: Registry, name: str, base: type[Kind], package: str | None) -> type[Kind]:
    """Return the class that a bundle names, as :func:`registered`; an unknown one is refused by its package's name.

    Parameters
    ----------
    package : str, optional
        Package that registered it where the bundle was trained.

    Raises
    ------
    InputError
        Nothing is registered under the name here.
    """
    if name not in table:
        cure = f"pip install {package}" if package else "install the package that brings it"
        raise InputError(
            f"it was trained with the {table.kind} {name!r}, which no installed package registers; {cure}, "
            "or train it again with another"
        )
    return registered(table, name, base)
