"""The CPU stand-in under a real SGLang server: whatever drafts, the tokens are the model's own."""

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from laps_sd.errors import WorkError
from laps_sd.serving.process.server import SglangServer
from laps_sd.serving.process.speculation import speculation_args

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]

NEW_TOKENS = 24
PROMPTS = [
    "The capital of France is",
    "<|im_start|>user\nList the numbers from 1 to 30, separated by commas.<|im_end|>\n<|im_start|>assistant\n",
    'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n',
    "Once upon a time, in a small village near the sea,",
]


@pytest.fixture(scope="session")
def prompt_ids(model_folder: Path) -> list[list[int]]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    return [tokenizer(prompt).input_ids for prompt in PROMPTS]


@pytest.fixture(scope="session")
def own_tokens(model_folder: Path, prompt_ids: list[list[int]]) -> list[list[int]]:
    """What transformers generates greedily, one prompt at a time, in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval()
    answers = []
    for ids in prompt_ids:
        with torch.no_grad():
            whole = model.generate(torch.tensor([ids]), max_new_tokens=NEW_TOKENS, do_sample=False)
        answers.append(whole[0, len(ids) :].tolist())
    return answers


def generate(server: SglangServer, prompts: Sequence[Sequence[int]]) -> list[dict]:
    """Send all prompts at once; the answers in order."""

    def one(ids: Sequence[int]) -> dict:
        sampling = {"temperature": 0, "max_new_tokens": NEW_TOKENS}
        body = {"input_ids": list(ids), "sampling_params": sampling}
        return httpx.post(server.url + "/generate", json=body, timeout=600, trust_env=False).raise_for_status().json()

    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(one, prompts))


@pytest.mark.parametrize("kind", ["none", "ngram", "standalone"])
def test_drafting_changes_no_token(server_factory, prompt_ids, own_tokens, kind: str) -> None:
    server = server_factory([*speculation_args(kind), "--enable-metrics"])
    answers = generate(server, prompt_ids)
    assert [answer["output_ids"] for answer in answers] == own_tokens
    if kind != "none":
        for meta in (answer["meta_info"] for answer in answers):
            steps = sum(meta["spec_correct_drafts_histogram"])
            assert 0 < steps == meta["spec_verify_ct"] <= NEW_TOKENS
    if kind == "standalone":
        accepted = [answer["meta_info"]["spec_accept_length"] for answer in answers]
        assert max(accepted) > 1.2, "the draft is the model's own first layers: it must agree sometimes"
    assert server.metrics()["sglang:num_queue_reqs"] == 0


def test_a_batch_gives_the_tokens_of_single_requests(server_factory, prompt_ids, own_tokens) -> None:
    server = server_factory([*speculation_args("ngram"), "--enable-metrics"])
    alone = [generate(server, [ids])[0]["output_ids"] for ids in prompt_ids]
    assert alone == own_tokens


# The other branches of the bookkeeping: a real tree of drafts, and more than one token per page.
TREE = ["--speculative-eagle-topk", "2", "--speculative-num-draft-tokens", "6"]
PAGES = ["--page-size", "16"]


@pytest.mark.parametrize("more", [TREE, PAGES], ids=["tree", "pages"])
def test_trees_and_pages_change_no_token(server_factory, prompt_ids, own_tokens, more: list[str]) -> None:
    answers = generate(server_factory([*speculation_args("standalone"), *more]), prompt_ids)
    assert [answer["output_ids"] for answer in answers] == own_tokens


def test_a_model_without_weights_is_said_in_one_sentence(model_folder: Path, tmp_path: Path) -> None:
    for file in model_folder.iterdir():
        if file.suffix != ".safetensors":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with (
        SglangServer(cpu=True, model=tmp_path) as server,
        pytest.raises(WorkError, match=r"died while starting .*weights.*; see /"),
    ):
        server.wait_ready()


def test_serve_ends_with_sglangs_own_status() -> None:
    command = [sys.executable, "-c", "from laps_sd.cli import main; main()"]
    ended = subprocess.run(
        [*command, "serve", "--cpu", "--", "--no-such-flag"], capture_output=True, text=True, timeout=600, check=False
    )
    assert ended.returncode == 2
    assert "error: unrecognized arguments: --no-such-flag" in ended.stderr
