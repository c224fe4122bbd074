"""CONTRIBUTING.md and docs/structure.md: their map is the folders, their commands and links are there."""

import ast
import re
from pathlib import Path

import pytest

from laps_sd.cli import VERBS

ROOT = Path(__file__).parents[1]
#: The rooms from the bottom up, then what stands on them.
TOP = ["data", "scheduler", "predictors", "training", "serving"]
TOP += ["laps_sd/simulation", "laps_sd/report", "laps_sd/commands"]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def map_of_the_folders() -> str:
    """Return one line a folder: its name, and the first sentence of its own docstring."""
    lines = []
    for top in TOP:
        for init in sorted((ROOT / top).rglob("__init__.py")):
            text = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8")))
            if "standins" not in init.parts and text:
                summary = " ".join(text.split("\n\n")[0].split())
                folder = init.parent.relative_to(ROOT)
                lines.append(f"{'- ' if str(folder) in TOP else '  - '}`{folder}`: {summary}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/structure.md"])
def test_the_map_has_a_line_for_each_folder(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    part = text.split("<!-- map -->\n")[1].split("<!-- /map -->")[0]
    wanted = map_of_the_folders()
    assert part == wanted, f"put this between the marks in {page}:\n{wanted}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_to_files(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


#: But for decisions.md, which tells what stood there on a day.
@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "decisions"], ids=lambda path: path.name)
def test_files_that_are_named_exist(page):
    named = re.findall(r"\b((?:tests|benchmarks|requirements)/[\w/.-]+\.\w+)", page.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_commands_that_are_shown_exist(page):
    known = {verb.removesuffix("_") for verb in VERBS}
    text = page.read_text(encoding="utf-8")
    blocks = "\n".join(
        [*re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL), *re.findall(r"^ {4}.*", text, re.M)]
    )
    shown = set(re.findall(r"^\s*(?:\$ )?laps-sd ([a-z]+)", blocks, re.MULTILINE))
    assert shown <= known


@pytest.mark.parametrize("test", sorted((ROOT / "tests").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_that_tests_cite_exist(test):
    cited = re.findall(r"docs/[\w-]+\.md|[A-Z]{5,}\.md", test.read_text(encoding="utf-8"))
    assert [name for name in cited if not (ROOT / name).exists()] == []
