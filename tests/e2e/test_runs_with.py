"""What laps-sd runs with, on real servers: the rows "works" of `laps_sd.serving.preflight.RUNS_WITH`."""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
import yaml
from transformers import LlamaConfig, LlamaForCausalLM

from laps_sd.serving.cpu.launch import command, environment
from laps_sd.serving.cpu.model import draft_model
from laps_sd.serving.process.server import SglangServer, free_port

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]

SLOTS = ["--max-running-requests", "3", "--enable-metrics"]
#: SGLang on a CPU gives each rank its cores.
CORES = {"SGLANG_CPU_OMP_THREADS_BIND": "0|0"}
LONG, SHORT = 40, 5
LONG_ONES = 6

FAULTY = '''
from laps_sd.scheduler.policies.laps_sd import LapsSd

class Faulty(LapsSd):
    """Preempts as laps-sd does, and fails right after the first has lost its slot."""

    name = "faulty"

    def on_preempt(self, state, cached_tokens=0):
        super().on_preempt(state, cached_tokens)
        raise ZeroDivisionError("a fault of the policy")
'''


@pytest.fixture(scope="module")
def even_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model of random weights whose heads two ranks can share; the demo model has nine."""
    folder = tmp_path_factory.mktemp("even")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152, hidden_size=128, intermediate_size=256, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=4096, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2,
        initializer_range=0.5,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(draft_model(8) / file, folder)
    return folder


@pytest.fixture(scope="module")
def faulty_package(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder for ``PYTHONPATH`` with a policy of somebody else's."""
    folder = tmp_path_factory.mktemp("packages")
    (folder / "laps_sd_faulty.py").write_text(FAULTY)
    info = folder / "laps_sd_faulty-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: laps-sd-faulty\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[laps_sd.policies]\nfaulty = laps_sd_faulty:Faulty\n")
    return str(folder)


def laps(tmp_path: Path, **config: Any) -> list[str]:
    file = tmp_path / "laps-sd.yaml"
    # As if resuming were free: with a small model on a CPU it costs a whole step, and preempting is seldom worth it.
    policy = {"recompute_weight": 0, **config.pop("policy", {})}
    file.write_text(yaml.safe_dump({"unpredicted": True, "policy": policy, **config}))
    return ["--schedule-policy", "laps-sd", "--laps-sd-config", str(file)]


def request(i: int, **more: Any) -> dict[str, Any]:
    """The body of request ``i``: the first ones are long, the others short."""
    tokens = LONG if i < LONG_ONES else SHORT
    hints = {"laps_sd": {"expected_output_tokens": tokens}}
    sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True, "custom_params": hints}
    return {"text": f"Question {i}: " + "word " * (3 + i), "sampling_params": sampling, **more}


def ask(url: str, i: int, *, on_token: Callable[[], None] = lambda: None, **more: Any) -> Any:
    """Return the answer to request ``i``; ``on_token`` is called while it is produced."""
    body, last = request(i, stream=True, **more), ""
    with httpx.stream("POST", url + "/generate", json=body, timeout=900, trust_env=False) as answer:
        answer.raise_for_status()
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                on_token()
                last = line
    return json.loads(last.removeprefix("data: "))


def burst(url: str, count: int = 20, **more: Any) -> list[Any]:
    """Return the answers to long requests, and to short ones that come once long ones hold all slots."""
    full, begun = threading.Event(), set()

    def on_token(i: int) -> None:
        begun.add(i)
        if len(begun) == 3:
            full.set()

    def one(i: int) -> Any:
        if i >= LONG_ONES:
            assert full.wait(600)
            time.sleep(0.02 * (i - LONG_ONES))
        return ask(url, i, on_token=lambda: on_token(i), **more)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def tokens_of(answers: list[Any]) -> list[Any]:
    return [answer["output_ids"] for answer in answers]


def metric(url: str, name: str) -> float | None:
    text = httpx.get(url + "/metrics", timeout=60, trust_env=False).text
    found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
    return sum(map(float, found)) if found else None


@pytest.fixture(scope="module")
def two_ranks(server_factory: Callable[..., SglangServer], even_model: Path) -> Callable[..., SglangServer]:
    def make(*args: str, **env: str) -> SglangServer:
        return server_factory(["--tp-size", "2", *SLOTS, *args], model=even_model, env={**CORES, **env})

    return make


@pytest.fixture(scope="module")
def reference(two_ranks: Callable[..., SglangServer]) -> list[Any]:
    return tokens_of(burst(two_ranks().url))


def test_two_ranks_preempt_alike(two_ranks: Callable[..., SglangServer], reference: list[Any], tmp_path: Path) -> None:
    server = two_ranks(*laps(tmp_path, hints={"priority": True}), "--schedule-low-priority-values-first")
    assert tokens_of(burst(server.url)) == reference
    assert (metric(server.url, "laps_sd_preemptions_total") or 0) > 0
    assert ask(server.url, 7, priority=-3)["meta_info"]["laps_sd"]["priority"] == 3, "lower values go first"


def test_a_full_queue_refuses_new_requests_and_no_preempted_one(
    two_ranks: Callable[..., SglangServer], reference: list[Any], tmp_path: Path
) -> None:
    server = two_ranks(*laps(tmp_path), "--max-queued-requests", "2")
    running = [threading.Event() for _ in range(3)]

    def short(i: int) -> httpx.Response:
        return httpx.post(server.url + "/generate", json=request(i), timeout=900, trust_env=False)

    with ThreadPoolExecutor(20) as pool:
        long_ones = [pool.submit(ask, server.url, i, on_token=event.set) for i, event in enumerate(running)]
        assert all(event.wait(600) for event in running)
        statuses = [answer.status_code for answer in pool.map(short, range(LONG_ONES, 20))]
    assert set(statuses) == {200, 503}
    assert (metric(server.url, "laps_sd_preemptions_total") or 0) > 0
    assert tokens_of([answer.result() for answer in long_ones]) == reference[:3]


def test_two_ranks_go_back_to_fcfs_together_when_the_policy_fails(
    two_ranks: Callable[..., SglangServer], reference: list[Any], faulty_package: str, tmp_path: Path
) -> None:
    python_path = os.pathsep.join(filter(None, [faulty_package, os.environ.get("PYTHONPATH", "")]))
    server = two_ranks(*laps(tmp_path, policy={"name": "faulty"}), PYTHONPATH=python_path)
    assert tokens_of(burst(server.url)) == reference, "nobody's answer is lost, or another one"
    assert metric(server.url, "laps_sd_active") == 0
    assert metric(server.url, "laps_sd_fallbacks_total") == 1
    assert server.log is not None
    log = server.log.read_text(errors="replace")
    assert log.count("this server schedules with fcfs and records nothing from now on") == 2, "once for each rank"
    assert "a fault of the policy" in log
    assert tokens_of(burst(server.url)) == reference, "and it goes on"
    server.raise_if_dead()


@pytest.fixture
def nodes(even_model: Path, tmp_path: Path) -> Iterator[str]:
    """Two nodes of one server on this machine; the address of the first."""
    meeting, ports = free_port(), (free_port(), free_port())
    started = []
    try:
        for rank, port in enumerate(ports):
            args = [
                "--model-path", str(even_model), "--tp-size", "2", "--nnodes", "2", "--node-rank", str(rank),
                "--dist-init-addr", f"127.0.0.1:{meeting}", "--port", str(port), *SLOTS, *laps(tmp_path),
            ]  # fmt: skip
            env = {**environment(), "SGLANG_CPU_OMP_THREADS_BIND": "0"}
            with (tmp_path / f"node{rank}.log").open("w") as log:
                node = subprocess.Popen(command(args), env=env, stdout=log, stderr=log, start_new_session=True)
            started.append(node)
        url = f"http://127.0.0.1:{ports[0]}"
        wait_healthy(url, started)
        yield url
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_healthy(url: str, started: list[Any]) -> None:
    for _ in range(900):
        assert all(process.poll() is None for process in started), "a node ended"
        try:
            if httpx.get(url + "/health_generate", timeout=5, trust_env=False).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(1)
    pytest.fail("the nodes never got ready")


def test_two_nodes_preempt_alike(nodes: str, reference: list[Any]) -> None:
    assert tokens_of(burst(nodes)) == reference
    assert (metric(nodes, "laps_sd_preemptions_total") or 0) > 0


def test_beams_run_beside_others_and_lose_no_slot(
    server_factory: Callable[..., SglangServer], even_model: Path, tmp_path: Path
) -> None:
    server = server_factory([*SLOTS, "--disable-overlap-schedule", *laps(tmp_path)], model=even_model)
    sampling = {"max_new_tokens": 200, "beam_width": 2, "n": 2, "ignore_eos": True}
    with ThreadPoolExecutor(2) as pool:
        body = {"text": "A story:", "sampling_params": sampling}
        beams = pool.submit(httpx.post, server.url + "/generate", json=body, timeout=900, trust_env=False)
        # SGLang 0.5.23 counts the slots of a beam search only once it runs: whoever is admitted in the same round takes
        # the slot of its second beam, with any scheduler, and the server ends.
        time.sleep(5)
        answers = burst(server.url, 12)
        answer = beams.result()
    assert answer.status_code == 200, answer.text
    assert len(json.dumps(answer.json())) > 0
    assert all(len(tokens) == (LONG if i < LONG_ONES else SHORT) for i, tokens in enumerate(tokens_of(answers)))
    server.raise_if_dead()
