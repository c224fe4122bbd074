"""Alert rules and dashboard ask for series and labels that the server exports, and docs/serving.md lists them."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from laps_sd.cli import app

ROOT = Path(__file__).parents[3]
#: Labels that Prometheus adds to every series, and that of a histogram's buckets.
ADDED = {"instance", "job", "le"}

EXPORTED = """
import json
from prometheus_client import REGISTRY
from laps_sd.serving.monitoring.metrics import SchedulerMetrics, TokenizerMetrics, _fallbacks
from laps_sd.serving.monitoring.served import Served
SchedulerMetrics("laps-sd", Served("", "", "", "", "laps-sd")), TokenizerMetrics(), _fallbacks()
found = {c._name + ("_total" if c._type == "counter" else ""): (c._type, list(c._labelnames))
         for c in REGISTRY._collector_to_names if getattr(c, "_name", "").startswith("laps_sd_")}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """Labels by the name of every series, histograms in their parts."""
    done = subprocess.run([sys.executable, "-c", EXPORTED], capture_output=True, text=True, timeout=120, check=True)
    series = {}
    for name, (kind, labels) in json.loads(done.stdout).items():
        for end in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
            series[name + end] = set(labels)
    return series


def expressions() -> Iterator[str]:
    for group in yaml.safe_load(CliRunner().invoke(app, ["config", "alerts"]).stdout)["groups"]:
        for rule in group["rules"]:
            yield rule["expr"]
    dashboard = json.loads(CliRunner().invoke(app, ["config", "dashboard"]).stdout)
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"]
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= by_labels(target["expr"]) | ADDED
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]


def by_labels(expression: str) -> set[str]:
    return {label.strip() for part in re.findall(r"by \(([^)]*)\)", expression) for label in part.split(",")}


def test_every_query_asks_for_what_is_exported(exported: dict[str, set[str]]) -> None:
    asked = list(expressions())
    assert len(asked) > 15
    for expression in asked:
        found = re.findall(r"(laps_sd_\w+)(?:{([^}]*)})?", expression)
        assert found, expression
        labels: set[str] = set()
        for name, matchers in found:
            assert name in exported, f"{name} is not exported: {expression}"
            matched = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
            assert matched <= exported[name] | ADDED, expression
            labels |= exported[name]
        assert by_labels(expression) <= labels | ADDED, expression
        assert expression.count("(") == expression.count(")"), expression


def test_the_page_lists_what_is_exported_with_its_labels(exported: dict[str, set[str]]) -> None:
    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    table = page.split("## Metrics\n")[1].split("A series with labels")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `laps_sd_")]
    listed = {
        name: set(filter(None, labels.split(",")))
        for row in rows
        for name, labels in re.findall(r"`(laps_sd_\w+)(?:{([^}]*)})?`", row)
    }
    wanted = {re.sub("_(bucket|sum|count)$", "", name): labels for name, labels in exported.items()}
    assert listed == wanted


def test_the_page_lists_every_alert() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    (group,) = yaml.safe_load(CliRunner().invoke(app, ["config", "alerts"]).stdout)["groups"]
    assert re.findall(r"^\| `(\w+)`", page, re.MULTILINE) == [rule["alert"] for rule in group["rules"]]
    assert all({"summary", "description"} == set(rule["annotations"]) for rule in group["rules"])
