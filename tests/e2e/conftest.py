"""Real SGLang servers on the CPU stand-in, shared by the tests of one session."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from laps_sd.serving.cpu.model import demo_model
from laps_sd.serving.process import SglangServer

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
