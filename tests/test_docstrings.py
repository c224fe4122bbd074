"""Examples in docstrings are run, and public docstrings name their errors and parameters in the NumPy form."""

import ast
import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "laps_sd"
ROOMS = ("data", "scheduler", "predictors", "training", "serving", "commands", "report", "simulation")
SOURCES = sorted(
    path
    for path in [*PACKAGE.glob("*.py"), *(p for room in ROOMS for p in (PACKAGE / room).rglob("*.py"))]
    if "standins" not in path.parts
)
WITH_EXAMPLES = [path for path in SOURCES if ">>> " in path.read_text(encoding="utf-8")]


def told(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=told)
def test_examples_in_docstrings_are_true(path):
    module = import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("path", SOURCES, ids=told)
def test_sections_are_those_of_the_numpy_form(path):
    """No Google or Sphinx sections: one form, so that every tool reads all of them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node) or ""
            assert not re.search(r"^\s*(?:Args|Returns|Raises|Attributes|Yields):\s*$|^\s*:param ", text, re.MULTILINE)
