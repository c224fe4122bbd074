"""`Any` is rare in serving, and each use says why nothing narrower is there."""

import ast
from pathlib import Path

import laps_sd.serving

SERVING = Path(laps_sd.serving.__file__).parent
MOST = 40


def uses(path: Path) -> list[str]:
    """The source lines that name `Any` outside of an import."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name) and node.id == "Any"]
    return [lines[node.lineno - 1] for node in found]


def test_any_is_rare_and_has_a_reason() -> None:
    found = [(path.name, line) for path in sorted(SERVING.rglob("*.py")) for line in uses(path)]
    assert len(found) <= MOST
    assert [(name, line) for name, line in found if "# Any: " not in line] == []


def test_a_use_without_a_reason_is_found(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("from typing import Any\n\n\ndef f(x: Any) -> None: ...\n")
    assert uses(tmp_path / "x.py") == ["def f(x: Any) -> None: ..."]
