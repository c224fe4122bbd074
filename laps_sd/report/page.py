"""A page of text, tables and plots in one HTML file that works offline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from laps_sd.files import write_text

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True, slots=True)
class _Block:
    kind: Literal["heading", "text", "note", "code", "table", "figure"]
    text: str = ""
    headers: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    html: str = ""


class Page:
    """Collect blocks in reading order, then write them as one file.

    Parameters
    ----------
    title, subtitle : str
        Plain text; everything given as text is escaped.

    Notes
    -----
    Blocks are rendered from what was given, without a clock or a random id: the same input writes the same bytes.
    """

    def __init__(self, title: str, subtitle: str = "") -> None:
        self.title = title
        self.subtitle = subtitle
        self._blocks: list[_Block] = []

    def heading(self, text: str) -> None:
        """Start a section."""
        self._blocks.append(_Block("heading", text))

    def text(self, text: str) -> None:
        """Add a paragraph."""
        self._blocks.append(_Block("text", text))

    def note(self, text: str) -> None:
        """Add a paragraph that stands out: a caveat, or where nothing is gained."""
        self._blocks.append(_Block("note", text))

    def code(self, text: str) -> None:
        """Add a command or another literal text."""
        self._blocks.append(_Block("code", text))

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> None:
        """Add a table; the first column is aligned left, the others right. ``None`` is shown as a dash."""
        cells = tuple(tuple("–" if cell is None else str(cell) for cell in row) for row in rows)
        self._blocks.append(_Block("table", caption, headers=tuple(headers), rows=cells))

    def figure(self, figure: Figure, caption: str = "") -> None:
        """Add a plotly figure."""
        html = figure.to_html(
            full_html=False,
            include_plotlyjs=False,
            div_id=f"figure-{len(self._blocks)}",
            config={"displaylogo": False, "responsive": True},
        )
        self._blocks.append(_Block("figure", caption, html=html))

    def render(self) -> str:
        """Return the HTML."""
        from jinja2 import Environment

        source = files("laps_sd.report").joinpath("page.html.j2").read_text(encoding="utf-8")
        # Plotly's script is 4 MB: inlined once, and only where there is something to draw.
        script = _plotly_script() if any(block.kind == "figure" for block in self._blocks) else ""
        template = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(source)
        return template.render(title=self.title, subtitle=self.subtitle, blocks=self._blocks, plotly_js=script)

    def write(self, path: Path | str) -> Path:
        """Write the page; a reader never sees half of it.

        Raises
        ------
        InputError, WorkError
            The file cannot be written.
        """
        html = self.render()
        write_text(Path(path), html)
        return Path(path)


def _plotly_script() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())
