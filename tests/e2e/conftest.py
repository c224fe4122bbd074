"""Real SGLang servers on the CPU stand-in, shared by the tests of one session."""

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import httpx
import pytest
import torch
from safetensors.torch import load_file, save_file

from laps_sd.serving.cpu.model import demo_model, draft_model
from laps_sd.serving.process.server import SglangServer

#: A server takes 2–4 GB: at most so many run at once, and the one used longest ago is stopped for a new one.
MOST_SERVERS = 2

ServerFactory = Callable[..., SglangServer]


@pytest.fixture(scope="session")
def model_folder() -> Path:
    """SmolLM2-135M-Instruct."""
    return demo_model()


@pytest.fixture(scope="session")
def server_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerFactory]:
    """``server_factory(args, model=None, env=None)``: a ready server, the same one for the same parameters."""
    servers: dict[tuple[object, ...], SglangServer] = {}
    logs = tmp_path_factory.mktemp("sglang")

    def make(
        args: Sequence[str] = (), *, model: Path | None = None, env: Mapping[str, str] | None = None
    ) -> SglangServer:
        key = (*args, model, *sorted((env or {}).items()))
        server = servers.pop(key, None)
        if server is None:
            while len(servers) >= MOST_SERVERS:
                servers.pop(next(iter(servers))).stop()
            log = logs / f"server-{len(list(logs.iterdir()))}.log"
            server = SglangServer(args, cpu=True, model=model, env=env, log=log)
            server.start()
        servers[key] = server  # used last: stopped last
        return server.wait_ready(600)

    try:
        yield make
    finally:
        for server in servers.values():
            server.stop()


def _wait_idle(server: SglangServer) -> None:
    for _ in range(1200):
        if httpx.post(server.url + "/flush_cache", timeout=60, trust_env=False).status_code == 200:
            server.raise_if_dead()
            return
        time.sleep(0.5)
    raise AssertionError("requests are stuck")


@pytest.fixture(scope="session")
def wait_idle() -> Callable[[SglangServer], None]:
    """``wait_idle(server)``: return once nothing runs or waits.

    Only then SGLang flushes its cache, and an idle one dies of a KV leak.
    """
    return _wait_idle


def _preempted(server: SglangServer, reason: str) -> float:
    text = httpx.get(server.url + "/metrics", timeout=60, trust_env=False).text
    found = re.findall(rf'laps_sd_preemptions_total{{reason="{reason}"}} (\S+)', text)
    return sum(map(float, found))


@pytest.fixture(scope="session")
def preempted() -> Callable[[SglangServer, str], float]:
    """``preempted(server, reason)``: requests that lost their slot for this reason, from our metrics."""
    return _preempted


@pytest.fixture(scope="session")
def eagle_head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An EAGLE draft head of random weights: next to nothing of it is accepted, and all of its code runs.

    It is made of the first layer and the vocabulary of its target, ``draft_model(8)``.
    """
    target, folder = draft_model(8), tmp_path_factory.mktemp("head")
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    config |= {"architectures": ["LlamaForCausalLMEagle"], "num_hidden_layers": 1, "tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(target / file, folder)
    source = load_file(target / "model.safetensors")
    vocabulary = source["model.embed_tokens.weight"]
    weights = {
        name.removeprefix("model."): tensor.clone()
        for name, tensor in source.items()
        if name.startswith("model.layers.0.") and "input_layernorm" not in name  # the head has none
    }
    size = config["hidden_size"]
    random = torch.randn(size, 2 * size, generator=torch.Generator().manual_seed(0)) * 0.02
    weights["fc.weight"] = random.to(vocabulary.dtype)
    weights["embed_tokens.weight"], weights["lm_head.weight"] = vocabulary.clone(), vocabulary.clone()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
