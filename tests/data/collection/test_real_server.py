"""The same against SGLang itself: collecting through both endpoints, and one prompt with equal text everywhere."""

import time
from pathlib import Path

import httpx
import pytest

from laps_sd.data import collect, read_records
from laps_sd.data.importers import ImportOptions, import_records
from laps_sd.data.prompts import generate_prompts

pytestmark = pytest.mark.server

ASKED = "Name three rivers in Europe.\nOne per line: übermäßig kurz"
CAP = 12


@pytest.fixture(scope="module")
def metrics_folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("metrics")


@pytest.fixture(scope="module")
def server(metrics_folder):
    from laps_sd.serving.cpu.model import demo_model
    from laps_sd.serving.process.server import SglangServer
    from laps_sd.serving.process.speculation import speculation_args

    export = ["--enable-metrics", "--export-metrics-to-file", "--export-metrics-to-file-dir", str(metrics_folder)]
    with SglangServer([*speculation_args("ngram"), *export], cpu=True, model=demo_model()) as running:
        yield running.wait_ready()


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    from laps_sd.serving.cpu.model import demo_model

    return AutoTokenizer.from_pretrained(str(demo_model()))


def exported(folder: Path, tokenizer, at_least: int):
    """Records of the exported metrics: SGLang writes them after it has answered."""
    for _ in range(200):
        files = sorted(folder.iterdir())
        records = list(import_records("sglang-metrics", files, ImportOptions(tokenizer=tokenizer))) if files else []
        if len(records) >= at_least:
            break
        time.sleep(0.1)
    return records


def test_both_endpoints_record_the_same_answers(server, tokenizer, tmp_path):
    prompts = generate_prompts(4, seed=5)
    generate, chat = tmp_path / "generate.parquet", tmp_path / "chat.parquet"
    options = {"max_new_tokens": CAP, "concurrency": 2}
    assert collect(server.url, prompts, generate, tokenizer=tokenizer, **options).recorded == 4
    assert collect(server.url, prompts, chat, endpoint="openai", **options).recorded == 4
    by_id = {record.request_id: record for record in read_records(chat)}
    for record in read_records(generate):
        other = by_id[record.request_id]
        # The chat endpoint templates as the tokenizer does: same prompt, same length, same greedy answer.
        assert (record.prompt, record.prompt_tokens) == (other.prompt, other.prompt_tokens)
        assert (record.output_tokens, record.finish_reason) == (other.output_tokens, other.finish_reason)
        assert record.censored == (record.output_tokens == CAP)
        for one in (record, other):
            assert (one.draft, one.max_correct_drafts) == ("NGRAM", 7)
            assert (one.verify_steps or 0) == sum(one.correct_drafts_histogram or ())
            assert 0 <= one.queue_s <= one.ttft_s <= one.e2e_s


def test_one_prompt_has_one_text_through_every_endpoint(server, tokenizer, metrics_folder):
    already = len(exported(metrics_folder, tokenizer, 0))
    templated = tokenizer.apply_chat_template(
        [{"role": "user", "content": ASKED}], tokenize=False, add_generation_prompt=True
    )
    sampling = {"max_new_tokens": 2, "temperature": 0}
    openai = {"model": "default", "max_tokens": 2, "temperature": 0}
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ASKED}]
    with httpx.Client(base_url=server.url, timeout=120, trust_env=False) as client:
        for path, body in (
            ("/generate", {"text": ASKED, "sampling_params": sampling}),
            ("/generate", {"text": templated, "sampling_params": sampling}),
            (
                "/generate",
                {"input_ids": tokenizer.encode(templated, add_special_tokens=False), "sampling_params": sampling},
            ),
            ("/v1/completions", {"prompt": templated, **openai}),
            ("/v1/chat/completions", {"messages": messages[1:], **openai}),
            ("/v1/chat/completions", {"messages": messages, **openai}),
        ):
            client.post(path, json=body).raise_for_status()
    records = exported(metrics_folder, tokenizer, already + 6)
    assert [(record.prompt, record.turns) for record in records[-6:]] == [(ASKED, 0)] * 6
    assert all(record.verify_steps == sum(record.correct_drafts_histogram) for record in records if record.verify_steps)
