"""What the serving tests share: SGLang importable on the CPU stand-in, and requests as its scheduler holds them."""

import json
import threading
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from laps_sd.scheduler import Prediction, SurvivalCurve
from laps_sd.serving.cpu import launch


@pytest.fixture(scope="session")
def sglang() -> ModuleType:
    """The installed SGLang with its scheduler and tokenizer modules imported."""
    with launch.importable(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import sglang
        import sglang.srt.managers.scheduler
        import sglang.srt.managers.tokenizer_manager
        import sglang.srt.server_args
    return sglang


@pytest.fixture
def parse(sglang: ModuleType) -> Callable[..., Namespace]:
    """``parse("--pp-size", "2")``: SGLang's own parser with our flags."""
    from sglang.srt.server_args import ServerArgs

    from laps_sd.serving.flags import add_flags

    def parsed(*args: str) -> Namespace:
        parser = ArgumentParser()
        ServerArgs.add_cli_args(parser)
        add_flags(parser)
        return parser.parse_args(["--model-path", "dummy", *args])

    return parsed


@pytest.fixture
def prediction() -> Callable[..., Prediction]:
    """``prediction(40)``: about 40 tokens, 2.5 per verify step."""

    def make(tokens: float, accept_length: float = 2.5, strength: float = 16.0) -> Prediction:
        return Prediction(SurvivalCurve.lognormal(tokens, 0.3), accept_length, strength)

    return make


@pytest.fixture(scope="session")
def make_req() -> Callable[..., Any]:
    """``make_req("a", prompt=10, limit=100)``: the attributes of SGLang's ``Req`` that the scheduler side reads."""

    class Req(SimpleNamespace):
        @property
        def output_ids_through_stop(self) -> list[int]:
            return self.output_ids if self.finished_len is None else self.output_ids[: self.finished_len]

        def finished(self) -> bool:
            return self.finished_reason is not None

    def make(rid: str, *, prompt: int = 10, limit: int = 100, priority: int | None = None, **more: Any) -> Any:
        plain = {
            "ignore_eos": False, "stop_strs": [], "stop_regex_strs": [], "frequency_penalty": 0.0,
            "presence_penalty": 0.0, "repetition_penalty": 1.0, "min_new_tokens": 0,
        }  # fmt: skip
        params = SimpleNamespace(max_new_tokens=limit, **{name: more.pop(name, value) for name, value in plain.items()})
        nothing = dict.fromkeys((
            "finished_reason", "to_finish", "finished_len", "beam_group", "session", "session_generation", "grammar",
            "custom_logit_processor", "multimodal_inputs", "input_embeds", "positional_embed_overrides",
            "token_type_ids",
        ))  # fmt: skip
        wanted = dict.fromkeys(("return_hidden_states", "return_routed_experts", "return_indexer_topk"), False)
        return Req(
            rid=rid,
            origin_input_ids=[1] * prompt,
            output_ids=[],
            sampling_params=params,
            priority=priority,
            num_matched_prefix_tokens=0,
            prefix_len=0,
            time_stats=SimpleNamespace(prefill_finished_time=0.0),
            **{**nothing, **wanted, **more},
        )

    return make


class FakeSglang:
    """Answers as an SGLang server does, without a model; every answer is ``tokens`` long.

    Attributes
    ----------
    info : dict
        What ``/server_info`` says.
    metrics : list of str
        What ``/metrics`` says, one after the other; the last one from then on.
    answer : callable
        ``(body, number)`` to (status, meta_info or text of an error).
    bodies : list of dict
        What was asked of ``/generate``.
    """

    def __init__(self) -> None:
        self.info: dict[str, Any] = {
            "model_path": "/models/little", "served_model_name": "/models/little", "schedule_policy": "hrrn",
            "max_running_requests": None, "internal_states": [{"effective_max_running_requests_per_dp": 7}],
            "speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 8,
        }  # fmt: skip
        self.metrics = [""]
        self.key: str | None = None
        self.bodies: list[dict[str, Any]] = []
        self.answer: Callable[[dict[str, Any], int], tuple[int, Any]] = lambda body, number: (200, self.meta())
        self.url = ""

    @staticmethod
    def meta(**fields: Any) -> dict[str, Any]:
        return {
            "id": "x", "finish_reason": {"type": "stop"}, "prompt_tokens": 9, "completion_tokens": 4,
            "spec_correct_drafts_histogram": [1, 0, 1], "num_retractions": 0, **fields,
        }  # fmt: skip

    def reply(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, str]:
        if self.key is not None and headers["Authorization"] != f"Bearer {self.key}":
            return 401, json.dumps({"error": "Unauthorized"})
        if path == "/server_info":
            return 200, json.dumps(self.info)
        if path == "/metrics":
            return 200, self.metrics.pop(0) if len(self.metrics) > 1 else self.metrics[0]
        if (method, path) != ("POST", "/generate"):
            return 404, "{}"
        asked = json.loads(body)
        self.bodies.append(asked)
        status, meta = self.answer(asked, len(self.bodies))
        if status != 200:
            return status, json.dumps({"error": {"message": meta}})
        early = {"text": "a", "output_ids": [5], "meta_info": {**meta, "finish_reason": None}}
        last = {"text": "abcd", "output_ids": [5, 6, 7, 8], "meta_info": meta}
        return 200, f"data: {json.dumps(early)}\n\ndata: {json.dumps(last)}\n\ndata: [DONE]\n\n"


@contextmanager
def serving(fake: FakeSglang) -> Iterator[FakeSglang]:
    """Let it answer on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None: ...

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            status, content = fake.reply(self.command, self.path, self.headers, body)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(content.encode())

        def do_POST(self) -> None:
            self.do_GET()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        fake.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield fake
        server.shutdown()
        thread.join()


@pytest.fixture
def fake_sglang() -> Iterator[FakeSglang]:
    """A server that runs already."""
    with serving(FakeSglang()) as fake:
        yield fake


@pytest.fixture
def started_servers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], FakeSglang]]:
    """The servers that a live comparison starts are such ones: their arguments and they themselves, in turn."""
    started: list[tuple[list[str], FakeSglang]] = []

    class Server:
        def __init__(self, args: list[str], **_: Any) -> None:
            started.append((list(args), FakeSglang()))

        def __enter__(self) -> Any:
            self._context = serving(started[-1][1])
            self._context.__enter__()
            return SimpleNamespace(url=started[-1][1].url, wait_ready=lambda: None, raise_if_dead=lambda: None)

        def __exit__(self, *why: Any) -> None:
            self._context.__exit__(*why)

    monkeypatch.setattr("laps_sd.serving.bench.servers.SglangServer", Server)
    return started


@pytest.fixture(scope="session")
def classes() -> Any:
    """Token classes of a vocabulary of 1,000 in which every ninth token ends a sentence."""
    from laps_sd.data.progress.classes import TokenClasses

    return TokenClasses.of_texts(["." if i % 9 == 0 else " word" for i in range(1000)])


@pytest.fixture(scope="session")
def refiner(classes: Any, make_refiner: Callable[..., Any]) -> Any:
    """A refinement after 32, 64 and 128 tokens by which answers with many sentences are nearly over."""
    return make_refiner(classes.name, [32, 64, 128], sentences=16.0)
