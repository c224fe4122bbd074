"""A real SGLang server as a context manager: started, awaited, stopped, and nothing of it left running."""

import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import httpx
import psutil

from laps_sd.errors import InputError, WorkError
from laps_sd.serving.cpu import launch
from laps_sd.serving.process.exposition import samples_of
from laps_sd.serving.process.log import telling_line

#: Called while waiting, with the seconds waited so far.
OnWaiting = Callable[[float], None]

_SUPERVISE = Path(__file__).parents[1] / "termination" / "supervise.py"
_OURS = {"--host", "--port", "--model-path", "--model"}
_STOP_TIMEOUT_S = 30.0


class SglangServer:
    """One SGLang server on 127.0.0.1.

    ``with SglangServer(args, cpu=True) as server: server.wait_ready(); httpx.post(server.url + "/generate", …)``

    It runs under a supervisor in a session of its own, which ends every process of it when this object stops it or
    when this process ends, however that happens.

    Parameters
    ----------
    args
        SGLang's own arguments, without host, port and model.
    cpu
        Run on the CPU stand-in, with its environment and defaults (:mod:`laps_sd.serving.cpu.launch`).
    model
        Model folder. A name that is no path is left to SGLang (a hub name). None: the demo model.
    port
        TCP port; None: a free one.
    log
        File that receives the server's output (kept); None: a temporary file, kept only after a failure.
    env
        Variables on top of this process's environment.
    grace_s
        Seconds that the server gets to end by itself before it is killed.
    """

    def __init__(
        self,
        args: Sequence[str] = (),
        *,
        cpu: bool,
        model: Path | str | None = None,
        port: int | None = None,
        log: Path | None = None,
        env: Mapping[str, str] | None = None,
        grace_s: float = 5.0,
    ) -> None:
        self.args = list(args)
        self.cpu = cpu
        self.model = model
        self.port = port if port is not None else free_port()
        self.log = log
        self.env = dict(env or {})
        self.grace_s = grace_s
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._keep_log = log is not None

    @property
    def url(self) -> str:
        """Base address, without a slash at the end."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Process id of SGLang's main process; raises :class:`WorkError` when it does not run."""
        while True:  # the supervisor needs a moment to start it
            self.raise_if_dead()
            assert self._supervisor is not None
            if children := psutil.Process(self._supervisor.pid).children():
                return children[0].pid
            time.sleep(0.05)

    def start(self) -> None:
        """Start the server and return at once.

        Raises
        ------
        InputError
            The model folder is missing or holds no model; ``args`` set what the parameters set.
        WorkError
            The port is in use, the log cannot be written, or this environment cannot serve.
        """
        if self._supervisor is not None:
            raise RuntimeError("this SglangServer was started before; make a new one")
        command = self.command()
        require_free(self.port)
        env = {**os.environ, **self.env}
        if self.cpu:
            env = launch.environment(env)
        with self._open_log() as log:
            self._supervisor = subprocess.Popen(  # noqa: S603
                [sys.executable, "-I", str(_SUPERVISE), str(os.getpid()), str(self.grace_s), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,  # Ctrl-C in a terminal reaches us only: we stop the server in order
            )

    def command(self) -> list[str]:
        """Return the command line of the server."""
        if clash := sorted(_OURS & {arg.split("=", 1)[0] for arg in self.args}):
            raise InputError(f"{', '.join(clash)} cannot stand among the server's arguments here: it is set otherwise")
        if self.cpu:
            launch.check(self.args)
        model = self._model()
        args = [*self.args, "--model-path", model, "--host", "127.0.0.1", "--port", str(self.port)]
        return launch.command(args) if self.cpu else [sys.executable, "-m", "sglang.launch_server", *args]

    def _model(self) -> str:
        if self.model is None:
            from laps_sd.serving.cpu.model import demo_model

            return str(demo_model())
        if isinstance(self.model, Path) or self.cpu:
            launch.require_model(Path(self.model))
        return str(self.model)

    def _open_log(self) -> IO[bytes]:
        if self.log is None:
            handle, name = tempfile.mkstemp(prefix="laps-sd-sglang-", suffix=".log")
            self.log = Path(name)
            return os.fdopen(handle, "wb")
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            return self.log.open("wb")
        except OSError as error:
            reason = f"the server's log {self.log} cannot be written ({error.strerror})"
            raise WorkError(f"{reason}; choose another folder") from error

    def health(self) -> bool:
        """Whether the server generates; False while it starts, and when it is gone."""
        try:
            return self._get("/health_generate", timeout_s=20.0).status_code == 200
        except httpx.HTTPError:
            return False

    def wait_ready(self, timeout: float = 600.0, progress: OnWaiting | None = None) -> Self:
        """Wait until the server generates; ``progress`` is called a few times a second.

        Raises
        ------
        WorkError
            The server died, or was not ready after ``timeout`` seconds (it is stopped then).
        """
        started = time.monotonic()
        while True:
            self.raise_if_dead("while starting")
            if self.health():
                return self
            waited = time.monotonic() - started
            if waited > timeout:
                self._keep_log = True
                self.stop()
                raise WorkError(f"the SGLang server was not ready after {timeout:.0f} s; see {self.log}")
            if progress is not None:
                progress(waited)
            time.sleep(0.25)

    def raise_if_dead(self, when: str = "while serving") -> None:
        """Raise :class:`WorkError` with the log's telling line when the server does not run (any more)."""
        if self._supervisor is None:
            raise WorkError("the SGLang server was not started")
        status = self._supervisor.poll()
        if status is None:
            return
        self._keep_log = True
        assert self.log is not None
        raise WorkError(f"the SGLang server died {when} (status {status}): {telling_line(self.log)}; see {self.log}")

    def metrics(self) -> dict[str, float]:
        """Return the server's Prometheus samples by name, summed over labels; it must run with ``--enable-metrics``."""
        try:
            answer = self._get("/metrics", timeout_s=20.0)
        except httpx.HTTPError as error:
            self.raise_if_dead()
            raise WorkError(f"the SGLang server at {self.url} gave no metrics: {error}") from error
        if answer.status_code != 200:
            raise WorkError(f"the SGLang server at {self.url} has no metrics; start it with --enable-metrics")
        samples: dict[str, float] = {}
        try:
            for name, _, value in samples_of(answer.text):
                samples[name] = samples.get(name, 0.0) + value
        except ValueError as error:
            raise WorkError(f"the SGLang server at {self.url} gave metrics that cannot be read ({error})") from error
        return samples

    def _get(self, path: str, *, timeout_s: float) -> httpx.Response:
        # trust_env=False: a proxy of the environment must not see requests to ourselves.
        with httpx.Client(trust_env=False, timeout=timeout_s) as client:
            return client.get(self.url + path)

    def stop(self) -> None:
        """End every process of the server and wait for it; may be called again."""
        supervisor = self._supervisor
        if supervisor is None:
            return
        if supervisor.poll() is None:
            supervisor.terminate()
            try:
                supervisor.wait(self.grace_s + _STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                _kill_tree(supervisor.pid)
                supervisor.wait()
        if not self._keep_log and self.log is not None:
            self.log.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        """Start the server."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server; its log is kept where something failed."""
        if isinstance(error, Exception):
            self._keep_log = True
        self.stop()


def _kill_tree(pid: int) -> None:
    """SIGKILL a process and all its descendants: the last resort."""
    try:
        root = psutil.Process(pid)
        for process in [*root.children(recursive=True), root]:
            process.kill()
    except psutil.NoSuchProcess:
        pass


def free_port() -> int:
    """Return a port that is free now, below the range from which the kernel takes the ports of outgoing connections."""
    for port in random.SystemRandom().sample(range(20000, 32000), 200):
        if _bindable(port):
            return port
    raise WorkError("no free TCP port between 20000 and 32000 on 127.0.0.1")


def require_free(port: int) -> None:
    """Raise :class:`WorkError` when the port is in use, :class:`InputError` when there is no such port."""
    if not 0 < port < 65536:
        raise InputError(f"{port} is no TCP port; choose one from 1 to 65535")
    if not _bindable(port):
        raise WorkError(f"port {port} is in use on 127.0.0.1; stop what listens there or choose another port")


def _bindable(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
