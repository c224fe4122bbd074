"""The rooms and the arrows between them, as docs/structure.md draws them."""

import ast
import re
import subprocess
import sys
from fnmatch import fnmatch
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "laps_sd"

LEAVES = {"declared", "errors", "extensions", "files"}
#: What each room may import of ours. ``scheduler`` is the pure core.
ARROWS = {
    "data": LEAVES,
    "scheduler": {"declared", "extensions"},
    "predictors": {*LEAVES, "data", "scheduler"},
    "training": {*LEAVES, "data", "scheduler", "predictors"},
    "serving": {*LEAVES, "data", "scheduler", "predictors", "training"},
}
ROOMS = list(ARROWS)
PURE = set(sys.stdlib_module_names) | {"numpy", "laps_sd"}


def modules(room: str) -> list[Path]:
    return sorted(path for path in (PACKAGE / room).rglob("*.py") if "standins" not in path.parts)


def imports(path: Path) -> set[str]:
    """Every module that a file imports: at its top, inside a function, or for type checking only."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; rooms are imported as laps_sd.ROOM"
            found.add(node.module or "")
            if node.module == "laps_sd":
                found |= {f"laps_sd.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_a_real_folder_with_a_relative_link(room):
    link = PACKAGE / room
    assert (ROOT / room).is_dir()
    assert link.is_symlink()
    assert link.readlink() == Path("..") / room


@pytest.mark.parametrize("room", ROOMS)
def test_arrows_point_downwards_only(room):
    allowed = ARROWS[room] | {room}
    for path in modules(room):
        for name in imports(path):
            if name.startswith("laps_sd."):
                target = name.split(".")[1]
                assert target in allowed or target == "__version__", f"{path} imports {name}"


def test_the_core_imports_numpy_and_the_standard_library_only():
    for path in modules("scheduler"):
        foreign = {name.split(".")[0] for name in imports(path)} - PURE
        assert not foreign, f"{path} imports {foreign}"


@pytest.mark.parametrize(("library", "room"), [("mlflow", "training"), ("sglang", "serving")])
def test_one_room_alone_knows_each_heavy_neighbour(library, room):
    for other in ROOMS:
        for path in modules(other):
            if any(name.split(".")[0] == library for name in imports(path)):
                assert other == room, f"{path} imports {library}"


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


def test_importing_the_core_loads_no_other_library():
    foreign = loaded_by("import laps_sd.scheduler") & {"pyarrow", "lightgbm", "sklearn", "torch", "mlflow", "sglang"}
    assert not foreign


def test_the_help_is_quick_because_it_loads_no_room():
    heavy = {"numpy", "pyarrow", "lightgbm", "sklearn", "torch", "mlflow", "sglang", "plotly", "pandas"}
    assert not loaded_by("import laps_sd.cli") & heavy


def entries(folder: Path) -> list[str]:
    """What stands in a folder, but for what Python and the packaging add and for the links to the rooms."""
    return sorted(
        path.name
        for path in folder.iterdir()
        if not path.is_symlink() and path.name not in ("__init__.py", "__pycache__", "py.typed")
    )


def box_of(name: str, base: str, boxes: set[str]) -> str | None:
    """Return the box of ``base`` that a module belongs to: a file or a folder directly below it."""
    below = name.removeprefix(f"{base}.").split(".")[0]
    return below if name.startswith(f"{base}.") and below in boxes else None


def arrows(folder: Path, base: str, lazy: bool = True) -> dict[str, set[str]]:
    """Return which boxes directly below a folder import which; its ``__init__`` only hands names on."""
    boxes = {name.removesuffix(".py") for name in entries(folder)}
    found: dict[str, set[str]] = {box: set() for box in boxes}
    for path in sorted(folder.rglob("*.py")):
        own = path.relative_to(folder).parts[0].removesuffix(".py")
        if own in boxes and "standins" not in path.parts:
            targets = {box_of(name, base, boxes) for name in names_from(path, lazy)}
            found[own] |= {target for target in targets if target is not None and target != own}
    return found


def names_from(path: Path, lazy: bool) -> set[str]:
    """Every name that a file imports, so that ``from laps_sd.data import records`` is seen to mean the folder."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()
    for node in ast.walk(tree) if lazy else tree.body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def packages(folder: Path) -> list[Path]:
    """Every package of ours from a folder downwards, itself included."""
    return [folder, *sorted(p.parent for p in folder.rglob("__init__.py") if p.parent != folder)]


PACKAGES = [PACKAGE, *(package for room in ROOMS for package in packages(PACKAGE / room))]
PACKAGES += [PACKAGE / name for name in ("commands", "report", "simulation")]


def told(path: Path) -> str:
    return str(path.relative_to(ROOT))


def has_folders(folder: Path) -> bool:
    return any((path / "__init__.py").is_file() for path in folder.iterdir())


@pytest.mark.parametrize("folder", PACKAGES, ids=told)
def test_files_and_folders_do_not_import_each_other_in_a_circle(folder):
    """Nowhere between folders. Inside one folder a class may import its own learner when it is asked to learn."""
    base = ".".join(folder.relative_to(ROOT).parts)
    try:
        list(TopologicalSorter(arrows(folder, base, lazy=has_folders(folder))).static_order())
    except CycleError as error:
        pytest.fail(f"{told(folder)}: {' ← '.join(error.args[1])}")


@pytest.mark.parametrize("folder", PACKAGES, ids=told)
def test_a_folder_says_what_it_is(folder):
    assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))


@pytest.mark.parametrize("room", ROOMS)
def test_nobody_inside_a_room_imports_through_its_front_door(room):
    """A room's ``__init__`` hands on what its files define: a file that imports it closes a circle."""
    for path in modules(room):
        if path.parent != PACKAGE / room:
            assert f"laps_sd.{room}" not in imports(path), f"{path} imports laps_sd.{room} itself"


@pytest.mark.parametrize("folder", [PACKAGE, *(PACKAGE / room for room in ROOMS)], ids=told)
def test_a_room_has_at_most_sixteen_entries(folder):
    assert len(entries(folder)) <= 16


LEAVES_FIRST = ("errors", "declared", "extensions", "files")
#: laps_sd from the bottom up: nothing imports what stands behind it here.
ORDER = [*LEAVES_FIRST, *ROOMS, "simulation", "report", "demo", "commands", "cli", "__main__"]


def test_the_whole_stands_in_order():
    assert set(ORDER) - set(ROOMS) == {name.removesuffix(".py") for name in entries(PACKAGE)}
    for box, targets in arrows(PACKAGE, "laps_sd").items():
        above = {target for target in targets if ORDER.index(target) > ORDER.index(box)}
        assert not above, f"{box} imports {above}"


@pytest.mark.parametrize(("page", "folder"), [("structure.md", ""), ("scheduler.md", "scheduler/")])
def test_the_maps_name_files_that_are_there(page, folder):
    table = [line for line in (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    names = [name for line in table for name in re.findall(r"`([\w/*.]+\.py)`", line)]
    assert names
    assert [name for name in names if not list(ROOT.glob(folder + name))] == []


def test_the_map_of_the_core_leaves_no_file_out():
    patterns = re.findall(r"`([\w*/]+)\.py`", (ROOT / "docs" / "scheduler.md").read_text(encoding="utf-8"))
    room = PACKAGE / "scheduler"
    files = {str(path.relative_to(room).with_suffix("")) for path in modules("scheduler") if path.stem != "__init__"}
    assert [name for name in sorted(files) if not any(fnmatch(name, pattern) for pattern in patterns)] == []


def tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


# Spelled in parts, so that this file does not find itself.
FORBIDDEN = [
    *(f"{module}.{verb}" for module in ("pickle", "cloudpickle", "joblib", "dill") for verb in ("load(", "loads(")),
    "allow_pickle" + "=True",
    "weights_only" + "=False",
    "pypi" + ".org",
    "pythonhosted" + ".org",
    "npmjs" + ".org",
    "download.pytorch" + ".org",
    "/wo" + "rk/",
    "/ro" + "ot/",
    "/opt/" + "wheels",
    "eval" + "(compile",
]


@pytest.mark.parametrize("text", FORBIDDEN)
def test_no_file_unpickles_or_names_a_registry_or_a_machine_path(text):
    holders = [str(path.relative_to(ROOT)) for path in tracked() if text.encode() in path.read_bytes()]
    assert holders == []
