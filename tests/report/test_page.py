"""A report is one file that a browser shows offline."""

from html.parser import HTMLParser

from plotly.graph_objects import Figure, Scatter

from laps_sd.report import Page


class _Links(HTMLParser):
    """What a browser would fetch: the text inside scripts does not count."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.found += [value for name, value in attrs if name in ("src", "href")]


def _page() -> Page:
    page = Page("Latency", "fcfs against laps-sd")
    page.heading("Means")
    page.table(["policy", "mean"], [["fcfs", 1.5], ["laps-sd", None]], caption="seconds")
    page.figure(Figure(Scatter(x=[1, 2], y=[3, 4])), caption="a line")
    return page


def test_text_is_escaped():
    page = Page("<b>&")
    page.text("<script>alert(1)</script>")
    html = page.render()
    assert "<script>alert" not in html
    assert "&lt;b&gt;&amp;" in html


def test_a_missing_cell_is_a_dash():
    assert "<td>–</td>" in _page().render()


def test_nothing_is_loaded_from_elsewhere():
    html = _page().render()
    assert "Plotly.newPlot" in html
    links = _Links()
    links.feed(html)
    assert links.found == []


def test_a_page_without_plots_is_small():
    page = Page("Words")
    page.text("only")
    assert len(page.render()) < 10_000


def test_the_same_blocks_give_the_same_bytes(tmp_path):
    first = _page().write(tmp_path / "a.html").read_bytes()
    assert _page().write(tmp_path / "b.html").read_bytes() == first


def test_a_file_name_that_is_not_text_can_be_told(tmp_path):
    page = Page("name\udcff.jsonl")
    assert "name\\udcff.jsonl" in page.write(tmp_path / "page.html").read_text(encoding="utf-8")
