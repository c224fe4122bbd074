"""What is imported is declared, what is declared is imported, and each room asks for its own extra only."""

import ast
import re
import sys
import tomllib
from collections import defaultdict
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from laps_sd.errors import EXTRA_OF

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
#: Which extras the code of a place may need besides what is always installed.
PLACES = {
    "data": {"transformer"},
    "scheduler": set(),
    "predictors": {"train", "transformer"},
    "training": {"train", "registry"},
    "serving": {"sglang", "transformer"},
    "laps_sd": {"train"},
}
#: SGLang's kernels: on a GPU they come with it, on a CPU serving/cpu/standins/ stands in for them.
WITH_SGLANG = {"sgl_kernel"}
#: Tools that are run, not imported, and types for mypy.
TOOLS = {"mypy", "ruff", "pytest-timeout", "pandas-stubs", "types-pyyaml", "types-psutil"}


def plain(name: str) -> str:
    """Return the name of a distribution in its normal form, without version or extras."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\s\[<>=!~;]", name.strip(), maxsplit=1)[0]).lower()


ALWAYS = {plain(line) for line in PROJECT["dependencies"]}
IN_EXTRA = {extra: {plain(line) for line in lines} for extra, lines in EXTRAS.items()}
DISTRIBUTIONS = packages_distributions()


def foreign(folder: str) -> dict[str, set[str]]:
    """Return the modules of others that the files of a folder import, each with the files."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted((ROOT / folder).rglob("*.py")):
        linked = any(parent.is_symlink() for parent in path.parents)
        if linked or "standins" in path.parts or "extension_package" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            for name in {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"laps_sd"}:
                found[name].add(str(path.relative_to(ROOT)))
    return found


def distributions(module: str) -> set[str]:
    return {plain(name) for name in DISTRIBUTIONS.get(module, ())}


@pytest.mark.parametrize("place", PLACES)
def test_every_import_is_declared_where_it_is_needed(place):
    declared = ALWAYS.union(*(IN_EXTRA[extra] for extra in PLACES[place]))
    missing = {
        module: files
        for module, files in foreign(place).items()
        if not distributions(module) & declared and not (module in WITH_SGLANG and "sglang" in PLACES[place])
    }
    assert missing == {}


def test_nothing_is_declared_that_nobody_imports():
    used = {name for place in PLACES for module in foreign(place) for name in distributions(module)}
    for where, names in {"dependencies": ALWAYS, **IN_EXTRA}.items():
        assert names - used == set(), f"{where} of pyproject.toml"


def lines(name: str) -> set[str]:
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    return {plain(line) for line in text.splitlines() if line.strip() and not line.startswith("#")}


def test_what_tests_and_benchmarks_import_is_installed_for_them():
    known = ALWAYS | lines("dev.txt") | lines("cpu.txt") | lines("cpu-nodeps.txt")
    helpers = {path.stem for path in (ROOT / "tests").rglob("*.py")} | {
        p.stem for p in (ROOT / "benchmarks").glob("*.py")
    }
    for folder in ("tests", "benchmarks"):
        for module, files in foreign(folder).items():
            if module not in WITH_SGLANG | helpers:
                assert distributions(module) & known, f"{module}, imported by {sorted(files)[0]}"


def test_the_developer_s_requirements_hold_nothing_else():
    used = {name for folder in (*PLACES, "tests", "benchmarks") for m in foreign(folder) for name in distributions(m)}
    assert lines("dev.txt") - used - TOOLS == set()


def test_the_cpu_requirements_hold_all_that_is_always_installed():
    assert ALWAYS - lines("cpu.txt") == set()


def test_a_missing_module_is_told_with_the_extra_that_brings_it():
    for module, extra in EXTRA_OF.items():
        assert distributions(module) & IN_EXTRA[extra], module
    outside = {module for place in PLACES for module in foreign(place) if not distributions(module) & ALWAYS}
    assert outside - WITH_SGLANG <= set(EXTRA_OF)
