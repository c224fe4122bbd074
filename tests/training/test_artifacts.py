"""Models whose files cannot be read: the store knows them, and the message says so and where the files are."""

import http.server
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from socket import socket
from urllib.request import urlopen

import pytest

from laps_sd.errors import InputError, WorkError
from laps_sd.training import load_bundle, pinned, resolve_bundle, train


def free_port() -> int:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def own_store(trace, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("artifacts")
    store = f"sqlite:///{folder / 'mlflow.db'}"
    train([trace], folder / "b", predictor="constant", register="lengths", tracking_uri=store)
    return store


@pytest.fixture(scope="module")
def server(trace, tmp_path_factory) -> Iterator[str]:
    folder, port = tmp_path_factory.mktemp("server"), free_port()
    store = f"sqlite:///{folder / 'mlflow.db'}"
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--workers",
        "1",
    ]
    command += ["--workers", "1", "--backend-store-uri", store, "--artifacts-destination", str(folder / "files")]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_for(f"http://127.0.0.1:{port}/health", process)
        train([trace], folder / "b", predictor="constant", register="lengths", tracking_uri=f"http://127.0.0.1:{port}")
        yield f"http://127.0.0.1:{port}"
    finally:
        stop(process)


@pytest.fixture(scope="module")
def proxy(server) -> Iterator[str]:
    handler = type("Handler", (Proxy,), {"target": server})
    front = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    front.daemon_threads = True
    threading.Thread(target=front.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{front.server_address[1]}"
    front.shutdown()
    front.server_close()


class TestAFolderOfThisMachine:
    def test_is_read(self, own_store):
        for uri in ("models:/lengths@champion", "models:/lengths/1"):
            assert load_bundle(uri, own_store).manifest["predictor"] == "constant"

    def test_an_alias_stands_for_a_version(self, own_store):
        assert pinned("models:/lengths@champion", own_store) == "models:/lengths/1"
        assert pinned("models:/lengths/1") == "models:/lengths/1"
        with pytest.raises(InputError, match="no model models:/lengths@nobody"):
            pinned("models:/lengths@nobody", own_store)

    def test_that_is_gone_is_named(self, own_store):
        artifacts = Path(own_store.removeprefix("sqlite:///")).parent / "mlartifacts"
        artifacts.rename(artifacts.with_name("elsewhere"))
        try:
            with pytest.raises(
                WorkError, match=rf"is registered, but its files cannot be read from file://{artifacts}"
            ):
                resolve_bundle("models:/lengths@champion", own_store)
        finally:
            artifacts.with_name("elsewhere").rename(artifacts)

    def test_an_unknown_version_is_still_no_model(self, own_store):
        for uri in ("models:/lengths/99", "models:/lengths@nobody", "models:/others/1", "runs:/" + "0" * 32):
            with pytest.raises(InputError, match="no model"):
                resolve_bundle(uri, own_store)
        with pytest.raises(InputError, match="expected models:/NAME@ALIAS"):
            resolve_bundle("models:/lengths/newest", own_store)


class TestAnArtifactServer:
    """A tracking server of MLflow, and before it a proxy whose way with artifacts each test chooses."""

    mode = ""

    @pytest.fixture(autouse=True)
    def _as_usual(self):
        yield
        Proxy.mode = ""

    def test_is_read(self, proxy):
        assert load_bundle("models:/lengths@champion", proxy).manifest["predictor"] == "constant"

    @pytest.mark.parametrize("mode", ["404", "500"])
    def test_that_refuses_is_named(self, proxy, mode):
        Proxy.mode = mode
        with pytest.raises(WorkError, match=rf"registered, but its files cannot be read from .*{mode}"):
            resolve_bundle("models:/lengths@champion", proxy)

    @pytest.mark.slow
    def test_that_takes_nothing_fails_the_training_in_one_sentence(self, proxy, trace, tmp_path):
        Proxy.mode = "500"
        with pytest.raises(WorkError, match=r"(store|artifacts of) http://127.0.0.1:\d+ failed: "):
            train([trace], tmp_path / "b", predictor="constant", tracking_uri=proxy)
        assert not (tmp_path / "b").exists()

    def test_that_says_nothing_is_given_up(self, proxy, monkeypatch):
        Proxy.mode = "hang"
        monkeypatch.setattr("laps_sd.training.resolve.SILENCE_S", 2)
        started = time.monotonic()
        with pytest.raises(WorkError, match=r"registered, but its files cannot be read from .*: it does not answer"):
            resolve_bundle("models:/lengths@champion", proxy)
        assert time.monotonic() - started < 30

    def test_that_trickles_is_ended_at_the_limit(self, proxy, monkeypatch):
        Proxy.mode = "trickle"
        monkeypatch.setattr("laps_sd.training.resolve.LIMIT_S", 8)
        started = time.monotonic()
        with pytest.raises(WorkError, match="the download has not ended after 8 s"):
            resolve_bundle("models:/lengths@champion", proxy)
        assert time.monotonic() - started < 30


class Proxy(http.server.BaseHTTPRequestHandler):
    """Passes requests on; those for artifacts as ``mode`` says."""

    protocol_version = "HTTP/1.0"
    target = ""
    mode = ""

    def _pass(self) -> None:
        from urllib.error import HTTPError
        from urllib.request import Request

        artifacts, mode = "mlflow-artifacts" in self.path, Proxy.mode
        if artifacts and mode == "hang":
            time.sleep(40)
            return
        if artifacts and mode.isdigit():
            self.send_response(int(mode))
            self.end_headers()
            return
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else None
        kept = {k: v for k, v in self.headers.items() if k.lower() == "content-type"}
        try:
            with urlopen(Request(self.target + self.path, body, kept, method=self.command)) as answer:
                status, content = answer.status, answer.read()
        except HTTPError as error:
            status, content = error.code, error.read()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if artifacts and mode == "trickle":
            for i in range(0, len(content), 20):
                self.wfile.write(content[i : i + 20])
                self.wfile.flush()
                time.sleep(1)
            return
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert process.poll() is None
        try:
            with urlopen(url):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("MLflow's server does not answer")


def stop(process: subprocess.Popen[bytes]) -> None:
    import os
    import signal

    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
