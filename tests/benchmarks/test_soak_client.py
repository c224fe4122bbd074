"""How a visit ends, as the client sees it."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from soak_client import Ending, Manner, Visit, ask
from soak_questions import Endpoint, Question

Answer = tuple[int, str]


class Server:
    """Answers every path with what it is told, after ``delay_s``; a list is a stream of events."""

    def __init__(self) -> None:
        self.status, self.content, self.delay_s = 200, [], 0.0
        self.content: Any = {}
        self.paths: list[str] = []
        self.url = ""

    def send(self, handler: BaseHTTPRequestHandler) -> None:
        asked = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        self.paths.append(handler.path)
        if handler.path == "/abort_request":
            self.status, self.content, self.delay_s = 400, "Aborted by a client", 0.0
            body = "{}"
        else:
            until = time.monotonic() + self.delay_s
            while self.delay_s and time.monotonic() < until:
                time.sleep(0.01)
            stream = asked.get("stream")
            body = "".join(f"data: {json.dumps(e)}\n\n" for e in self.content) + "data: [DONE]\n\n" if stream else ""
            body = body or (self.content if isinstance(self.content, str) else json.dumps(self.content))
        handler.send_response(200 if handler.path == "/abort_request" else self.status)
        handler.end_headers()
        handler.wfile.write(body.encode())


@pytest.fixture
def server() -> Iterator[Server]:
    fake = Server()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

        def do_POST(self) -> None:
            try:
                fake.send(self)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        fake.url = f"http://127.0.0.1:{http.server_address[1]}"
        yield fake
        http.shutdown()
        thread.join()


@pytest.fixture
def visit(server: Server) -> Callable[..., Ending]:
    def made(endpoint: Endpoint = "generate", manner: Manner = "waits", *, stream: bool = False, **when: Any) -> Ending:
        question = Question(0, "plain", endpoint, "Why?", {"temperature": 0.0, "max_new_tokens": 3})
        limits = {"after_s": 0.05, "after_events": 0, **when}
        return ask(server.url, Visit(0, question, manner, None, None, stream, **limits))

    return made


def generated(ids: list[int], end: str | None, index: int = 0) -> dict[str, Any]:
    meta = {"finish_reason": end and {"type": end}, "laps_sd": {"preemptions": 1}}
    return {"text": "x" * len(ids), "output_ids": ids, "index": index, "meta_info": meta}


def answer(ids: list[int], end: str) -> dict[str, Any]:
    return {"text": "x" * len(ids), "ids": ids, "end": end}


def test_an_answer_of_generate(server: Server, visit: Callable[..., Ending]) -> None:
    server.content = generated([1, 2], "stop")
    assert visit() == Ending("answered", [answer([1, 2], "stop")], preemptions=1)
    server.content = [generated([1, 2], "stop"), generated([3], "length")]
    assert visit() == Ending("answered", [answer([1, 2], "stop"), answer([3], "length")], preemptions=2)


def test_a_stream_of_generate_with_several_samples(server: Server, visit: Callable[..., Ending]) -> None:
    parts = [generated([3], None, 1), generated([1], None), generated([3, 4], "length", 1), generated([1, 2], "stop")]
    server.content = parts
    assert visit(stream=True).answers == [answer([1, 2], "stop"), answer([3, 4], "length")]
    server.content = parts[:3]
    assert visit(stream=True).how == "failed", "the first sample never ended"
    server.content = []
    assert visit(stream=True).how == "failed"


def test_answers_of_the_openai_endpoints(server: Server, visit: Callable[..., Ending]) -> None:
    whole = {"text": "ab", "ids": None, "end": "stop"}
    server.content = {"choices": [{"index": 0, "text": "ab", "finish_reason": "stop"}]}
    assert visit("completions").answers == [whole]
    server.content = {"choices": [{"index": 0, "message": {"content": "ab"}, "finish_reason": "stop"}]}
    assert visit("chat").answers == [whole]
    server.content = [
        {"choices": [{"index": 0, "text": t, "finish_reason": e}]} for t, e in (("a", None), ("b", "stop"))
    ]
    assert visit("completions", stream=True).answers == [whole]
    deltas = ({"role": "assistant", "content": ""}, {"content": "ab"}, {"content": None})
    ends = (None, None, "stop")
    server.content = [
        {"choices": [{"index": 0, "delta": d, "finish_reason": e}]} for d, e in zip(deltas, ends, strict=True)
    ]
    assert visit("chat", stream=True).answers == [whole]
    assert server.paths == ["/v1/completions", "/v1/chat/completions", "/v1/completions", "/v1/chat/completions"]


@pytest.mark.parametrize(
    ("status", "content", "how"),
    [
        (400, "max_new_tokens must be positive", "refused"),
        (400, "Aborted", "aborted"),
        (503, "The request queue is full", "failed"),
        (200, "no JSON", "failed"),
        (200, {"text": "no meta_info"}, "failed"),
    ],
)
def test_what_is_no_answer(server: Server, visit: Callable[..., Ending], status: int, content: Any, how: str) -> None:
    server.status, server.content = status, content
    assert visit().how == how


def test_an_aborted_answer_and_one_whose_stream_tells_of_an_error(server: Server, visit: Callable[..., Ending]) -> None:
    server.content = generated([1], "abort")
    assert visit() == Ending("aborted", [answer([1], "abort")], preemptions=1)
    server.content = [generated([1], None), {"error": {"message": "out of memory"}}]
    assert visit(stream=True).how == "failed"
    server.content = [{"error": {"message": "max_new_tokens must be positive", "code": 400}}]
    assert visit(stream=True).how == "refused"


def test_a_server_that_is_gone_is_a_failure(server: Server, visit: Callable[..., Ending]) -> None:
    server.url = "http://127.0.0.1:1"
    assert visit().how == "failed"


def test_who_hangs_up_takes_no_more_than_so_many_events(server: Server, visit: Callable[..., Ending]) -> None:
    server.content = [generated([1], None), generated([1, 2], None), generated([1, 2, 3], "stop")]
    assert visit(manner="hangs up", stream=True, after_events=1).how == "left"
    assert visit(manner="hangs up", stream=True, after_events=7).how == "answered", "it was quicker"


def test_who_gives_up_goes_away_and_may_abort(server: Server, visit: Callable[..., Ending]) -> None:
    server.content, server.delay_s = generated([1], "stop"), 0.6
    assert visit(manner="gives up").how == "left"
    assert server.paths == ["/generate"]
    assert visit(manner="gives up and aborts").how == "left"
    assert server.paths[1:] == ["/generate", "/abort_request"]


def test_who_aborts_still_waits_for_what_comes(server: Server, visit: Callable[..., Ending]) -> None:
    server.content, server.delay_s = generated([1], "stop"), 0.5
    assert visit(manner="aborts").how == "aborted"
    assert server.paths == ["/generate", "/abort_request"]
