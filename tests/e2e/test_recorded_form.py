"""What requests say of the form of their answers is in the record of a real server, and collect says the same."""

from pathlib import Path

import httpx
import pytest
import yaml

from laps_sd.data import Prompt, RequestRecord, collect, read_records
from laps_sd.data.collection.form import Form
from laps_sd.serving.process.server import SglangServer

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]

SCHEMA = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
PROMPTS = [
    Prompt("plain", "Name a river."),
    Prompt("pattern", "Is the sea salty?", form=Form({"regex": "(yes|no)"})),
    Prompt("schema", "Is the sea wet?", form=Form({"json_schema": SCHEMA})),
]


def asked(record: RequestRecord) -> tuple[object, ...]:
    return record.prompt, record.turns, record.constraint, record.tools, record.thinking, record.ignore_eos


def test_the_server_and_collect_record_the_same(tmp_path: Path, model_folder: Path) -> None:
    trace, config = tmp_path / "live.jsonl", tmp_path / "laps-sd.yaml"
    config.write_text(yaml.safe_dump({"unpredicted": True, "record": {"path": str(trace), "prompts": "text"}}))
    args = ["--schedule-policy", "laps-sd", "--laps-sd-config", str(config), "--max-running-requests", "4"]
    with SglangServer(args, cpu=True, model=model_folder, log=tmp_path / "server.log") as server:
        server.wait_ready(900)
        for endpoint in ("generate", "openai"):
            out = tmp_path / f"{endpoint}.jsonl"
            collect(server.url, PROMPTS, out, endpoint=endpoint, max_new_tokens=12, concurrency=1)  # type: ignore[arg-type]
        body = {"text": "Go on", "sampling_params": {"max_new_tokens": 4, "ignore_eos": True}}
        httpx.post(f"{server.url}/generate", json=body, timeout=300).raise_for_status()
        chat = {
            "model": "default", "max_tokens": 4, "tools": [TOOL], "tool_choice": "required",
            "messages": [{"role": "user", "content": "How warm is it?"}],
        }  # fmt: skip
        httpx.post(f"{server.url}/v1/chat/completions", json=chat, timeout=300).raise_for_status()
    collected = [asked(r) for name in ("generate", "openai") for r in read_records(tmp_path / f"{name}.jsonl")]
    recorded = [asked(r) for r in read_records(trace)]
    assert [row for row in recorded if row in collected] == collected
    assert ("Go on", 0, None, None, None, True) in recorded
    (call,) = [r for r in read_records(trace) if r.prompt == "How warm is it?"]
    assert call.constraint is not None
    assert call.constraint.startswith(("json_schema:", "structural_tag:"))
