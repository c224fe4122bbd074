"""What the hooks read of SGLang stands in the table: found in their source, so that no attribute slips past it.

Types are followed through the source as far as annotations tell: a parameter ``req: Req`` makes ``req.time_stats`` a
`TimeStats`. What is declared nowhere is reported, and so is a name imported from SGLang that the table lacks.
"""

import ast
import inspect
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import laps_sd.serving
from laps_sd.serving import engine
from laps_sd.serving.hooks.targets import ALL_TARGETS

SERVING = Path(inspect.getfile(laps_sd.serving)).parent
#: Whoever holds objects of SGLang.
SOURCES = [*sorted((SERVING / "hooks").glob("*.py")), *sorted((SERVING / "requests").glob("*.py"))]
PROTOCOLS = {cls.__name__: cls for cls in vars(engine).values() if getattr(cls, "_is_protocol", False)}
#: Base classes of ours that stand for SGLang's.
BASES = {
    "PolicyAdder": engine.PrefillAdder,
    "FieldsStreamer": engine.OutputStreamer,
    "RoundsStreamer": engine.OutputStreamer,
}


class Reader(ast.NodeVisitor):
    """Collects every attribute of a described object that a module reads, writes or calls."""

    def __init__(self) -> None:
        self.known: dict[str, typing.Any] = {}
        self.owner: type | None = None
        self.own: set[str] = set()
        self.read: set[tuple[str, str]] = set()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.owner = BASES.get(node.name)
        self.own = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
        self.own |= {n.target.id for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
        self.own |= {t.id for n in node.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
        for name in self.own & set(getattr(self.owner, "__annotations__", ())):
            self.member(self.owner, name)  # set for the whole class
        self.generic_visit(node)
        self.owner = None

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        before = dict(self.known)
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        for argument in arguments:
            self.known[argument.arg] = self.annotated(argument.annotation)
        if arguments and arguments[0].arg == "self":
            self.known["self"] = self.owner
        for statement in node.body:
            self.visit(statement)
        self.known = before

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.generic_visit(node)
        if isinstance(node.target, ast.Name):
            self.known[node.target.id] = self.annotated(node.annotation)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            values = [node.value]
            places = [target]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                places, values = target.elts, node.value.elts
            for place, value in zip(places, values, strict=False):
                if isinstance(place, ast.Name):
                    self.known[place.id] = self.type_of(value)
                else:
                    self.visit(place)

    def visit_For(self, node: ast.For) -> None:
        self.bind(node.target, node.iter)
        self.generic_visit(node)

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            for generator in node.generators:
                self.bind(generator.target, generator.iter)
        super().visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.type_of(node)
        self.generic_visit(node)

    def bind(self, target: ast.expr, source: ast.expr) -> None:
        call = source.func.id if isinstance(source, ast.Call) and isinstance(source.func, ast.Name) else ""
        if call in ("enumerate", "zip") and isinstance(target, ast.Tuple):
            items = target.elts[1:] if call == "enumerate" else target.elts
            for place, part in zip(items, source.args, strict=False):  # type: ignore[attr-defined]
                self.bind(place, part)
        elif isinstance(target, ast.Name):
            self.known[target.id] = self.element(source)

    def element(self, source: ast.expr) -> typing.Any:
        if isinstance(source, ast.Tuple | ast.List):
            found = [self.element(e.value) if isinstance(e, ast.Starred) else self.type_of(e) for e in source.elts]
            return next((kind for kind in found if kind is not None), None)
        arguments = typing.get_args(self.type_of(source))
        return plain(arguments[0]) if arguments else None

    def annotated(self, annotation: ast.expr | None) -> typing.Any:
        if annotation is None:
            return None
        names = {**vars(engine), **vars(typing), "list": list, "dict": dict, "tuple": tuple, "Iterable": Iterable}
        try:
            return plain(eval(ast.unparse(annotation), names))
        except (NameError, TypeError):
            return None

    def type_of(self, node: ast.expr) -> typing.Any:
        match node:
            case ast.Name(id=name):
                return self.known.get(name)
            case ast.Call(func=ast.Name(id="cast"), args=[kind, _]):
                return self.annotated(kind)
            case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name)):
                return self.member(self.owner, name)
            case ast.Call(func=ast.Attribute() as function):
                return self.type_of(function)
            case ast.Subscript(value=value):
                inner = self.type_of(value)
                arguments = typing.get_args(inner)
                return plain(arguments[0]) if arguments and not isinstance(node.slice, ast.Slice) else inner
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name):
                return self.member(self.owner, name)
            case ast.Attribute(value=value, attr=name):
                return self.member(self.type_of(value), name)
        return None

    def member(self, kind: typing.Any, name: str) -> typing.Any:
        if kind not in PROTOCOLS.values():
            return None
        if name in self.own and kind is self.owner and name not in {*vars(kind), *kind.__annotations__}:
            return None
        self.read.add((kind.__name__, name))
        hint = typing.get_type_hints(kind).get(name)
        if hint is None and callable(vars(kind).get(name)):
            hint = typing.get_type_hints(vars(kind)[name]).get("return")
        return plain(hint)


def plain(hint: typing.Any) -> typing.Any:
    """The type without ``| None``."""
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    return kinds[0] if len(kinds) == 1 and type(None) in typing.get_args(hint) else hint


def undeclared(source: str) -> list[str]:
    """Attributes that the source reads of SGLang's objects and that are declared nowhere."""
    reader = Reader()
    reader.visit(ast.parse(source))
    found = []
    for kind, name in sorted(reader.read):
        cls = PROTOCOLS[kind]
        if name not in cls.__annotations__ and name not in vars(cls):
            found.append(f"{kind}.{name}")
    return found


def imported(source: str) -> Iterator[str]:
    """Dotted paths that the source imports from SGLang."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sglang":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_attribute_that_is_read_is_declared(path: Path) -> None:
    assert undeclared(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_name_that_is_imported_stands_in_the_table(path: Path) -> None:
    paths = [target.path for target in ALL_TARGETS]
    for name in imported(path.read_text(encoding="utf-8")):
        assert any(known == name or known.startswith(f"{name}.") for known in paths), name


def test_every_declaration_stands_in_the_table_and_is_read() -> None:
    reader = Reader()
    for path in SOURCES:
        reader.visit(ast.parse(path.read_text(encoding="utf-8")))
        reader.known = {}
    declared = {
        (d.path, name) for cls, d in engine.DESCRIBED.items() for name in cls.__annotations__ if name not in engine.OURS
    }
    table = {(t.path, name) for t in ALL_TARGETS if t.kind == "attributes" for name in t.names}
    assert declared <= table
    read = {
        (engine.DESCRIBED[PROTOCOLS[kind]].path, name)
        for kind, name in reader.read
        if PROTOCOLS[kind] in engine.DESCRIBED
    }
    assert declared - read == set(), "declared and read by nobody"


@pytest.mark.parametrize(
    "source",
    [
        "def hook(req: Req) -> None:\n    req.no_such_thing",
        "def hook(batch: Batch) -> None:\n    for req in batch.reqs:\n        req.no_such_thing",
        "def hook(batch: Batch) -> None:\n    [r.no_such_thing for r in batch.reqs if r.finished()]",
        "def hook(scheduler: Scheduler) -> None:\n    tree = scheduler.tree_cache\n    tree.no_such_thing()",
        "def hook(batch: Batch) -> None:\n    for i, req in enumerate(batch.reqs):\n        req.no_such_thing = i",
        "class PolicyAdder(B):\n    def go(self):\n        self.running_batch.no_such_thing",
        "class PolicyAdder(B):\n    def go(self):\n        self.no_such_thing()",
        "def hook(x: object) -> None:\n    spec: SpeculationOptions = get_spec()\n    spec.no_such_thing",
    ],
)
def test_what_is_declared_nowhere_is_found(source: str) -> None:
    (found,) = undeclared(source)
    assert found.endswith(".no_such_thing")


def test_an_import_that_the_table_lacks_is_found() -> None:
    assert list(imported("from sglang.srt.managers.utils import no_such_thing")) == [
        "sglang.srt.managers.utils.no_such_thing"
    ]
