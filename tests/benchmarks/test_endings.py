"""The table "what ends how" of docs/serving.md is what real servers do."""

from pathlib import Path

import pytest
from endings import FAULTY_WAYS, HEAD, KILLED, WAYS, as_markdown, observe

PAGE = Path(__file__).parents[2] / "docs" / "serving.md"


def printed() -> list[str]:
    """The table in the docs, line by line."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    at = lines.index(HEAD)
    return lines[at : lines.index("", at)]


def test_the_docs_have_a_row_for_every_ending() -> None:
    first = [line.split("|")[1].strip() for line in printed()[2:]]
    assert first == [*WAYS, KILLED, *FAULTY_WAYS]


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.timeout(1800)
def test_real_servers_end_requests_as_the_docs_say(tmp_path: Path) -> None:
    table = as_markdown(observe(tmp_path)).splitlines()
    assert table == printed(), "print it with: python benchmarks/endings.py"
