"""The process manager with small fake servers: whatever happens, nothing of a server is left running."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from laps_sd.errors import InputError, WorkError
from laps_sd.serving.process import server as process
from laps_sd.serving.process.server import SglangServer, free_port
from laps_sd.serving.process.speculation import speculation_args

#: A server with a child in a session of its own, as SGLang's may be, that ignores a polite end. Both write their pid.
FAKE = """
import http.server, os, signal, subprocess, sys, time
behaviour, port, pids = sys.argv[1], int(sys.argv[2]), sys.argv[3]
stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-S", "-c", stubborn], start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
with open(pids, "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
if behaviour == "dies":
    raise RuntimeError("the weights are missing")
if behaviour == "hangs":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(60)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/die":
            print("ValueError: out of memory", flush=True)
            os._exit(7)
        self.send_response(404 if self.path == "/metrics" and behaviour == "bare" else 200)
        self.end_headers()
        if self.path == "/metrics":
            self.wfile.write(b'# HELP x y\\nsglang:queue{rank="0"} 2.0\\nsglang:queue{rank="1"} 3.0\\n')
    def log_message(self, *_):
        pass
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


class FakeServer(SglangServer):
    """Runs ``FAKE`` instead of SGLang."""

    def __init__(self, folder: Path, behaviour: str = "serves", **options) -> None:
        super().__init__(cpu=False, log=folder / "server.log", grace_s=0.3, **options)
        self.behaviour = behaviour
        self.pids = folder / "pids"

    def command(self) -> list[str]:
        return [sys.executable, "-S", "-c", FAKE, self.behaviour, str(self.port), str(self.pids)]

    def processes(self) -> list[int]:
        return wait_for(lambda: [int(pid) for pid in read(self.pids).split()])


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def wait_for(look: Callable[[], object], timeout_s: float = 20.0):
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return found


def running(pids: list[int]) -> list[int]:
    alive = [pid for pid in pids if psutil.pid_exists(pid)]
    return [pid for pid in alive if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


@pytest.fixture
def serving(tmp_path: Path):
    with FakeServer(tmp_path) as server:
        yield server.wait_ready(20)


def test_a_server_is_reached_and_then_gone(tmp_path: Path) -> None:
    waits: list[float] = []
    with FakeServer(tmp_path) as server:
        server.wait_ready(20, progress=waits.append)
        pids = server.processes()
        assert server.health()
        assert server.pid == pids[0]
        assert running(pids) == pids
    assert running(pids) == []
    assert waits == sorted(waits)
    assert not server.health()
    server.stop()  # again: nothing happens
    assert (tmp_path / "server.log").exists(), "a log that was asked for is kept"


def test_metrics_are_summed_over_labels(serving: FakeServer) -> None:
    assert serving.metrics() == {"sglang:queue": 5.0}


def test_a_server_without_metrics_says_which_flag_is_missing(tmp_path: Path) -> None:
    with FakeServer(tmp_path, "bare") as server, pytest.raises(WorkError, match="--enable-metrics"):
        server.wait_ready(20).metrics()


def test_a_server_that_dies_at_its_start_is_quoted(tmp_path: Path) -> None:
    with FakeServer(tmp_path, "dies") as server:
        with pytest.raises(WorkError, match=r"died while starting.*RuntimeError: the weights are missing.*server\.log"):
            server.wait_ready(20)
        assert running(server.processes()) == [], "its child went with it"


def test_a_server_that_dies_midway_is_quoted(serving: FakeServer) -> None:
    serving.raise_if_dead()
    pids = serving.processes()
    with pytest.raises(Exception, match="disconnected"):
        serving._get("/die", timeout_s=5)
    with pytest.raises(WorkError, match=r"died while serving \(status 7\): ValueError: out of memory"):
        wait_for(serving.raise_if_dead)
    assert running(pids) == []


def test_a_server_that_never_gets_ready_is_killed(tmp_path: Path) -> None:
    server = FakeServer(tmp_path, "hangs")
    with server:
        pids = server.processes()
        with pytest.raises(WorkError, match="not ready after 0 s"):
            server.wait_ready(0.1)
        assert running(pids) == []


def test_an_exception_in_the_block_stops_the_server(tmp_path: Path) -> None:
    server = FakeServer(tmp_path)
    pids: list[int] = []

    def work() -> None:
        with server:
            pids.extend(server.processes())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert pids
    assert running(pids) == []


#: Starts a fake server as a program would and waits in the block.
# A shell's background job inherits an ignored SIGINT; the program of this test is one that a person can interrupt.
PROGRAM = """
import importlib.util, signal, sys, time
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)
spec = importlib.util.spec_from_file_location("fakes", sys.argv[1])
fakes = importlib.util.module_from_spec(spec); spec.loader.exec_module(fakes)
with fakes.FakeServer(Path(sys.argv[2])) as server:
    server.wait_ready(20); print("ready", flush=True); time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_program_that_is_ended_leaves_no_server(tmp_path: Path, number: signal.Signals) -> None:
    program = [sys.executable, "-c", PROGRAM, __file__, str(tmp_path)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running_program:
        assert running_program.stdout is not None
        assert running_program.stdout.readline() == "ready\n"
        pids = [int(pid) for pid in read(tmp_path / "pids").split()]
        assert running(pids) == pids
        os.kill(running_program.pid, number)
        running_program.wait(20)
    wait_for(lambda: not running(pids))


def test_a_supervisor_that_is_killed_takes_the_server_with_it(tmp_path: Path) -> None:
    server = FakeServer(tmp_path)
    with server:
        main, child = server.processes()
        psutil.Process(main).parent().kill()
        wait_for(lambda: not running([main]))
        psutil.Process(child).kill()  # SGLang's own children end with their parent; this fake's does not


def test_a_port_in_use_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(WorkError, match=f"port {port} is in use"):
            FakeServer(tmp_path, port=port).start()
    assert not (tmp_path / "server.log").exists()


def test_a_free_port_can_be_bound_on_this_machine_only() -> None:
    port = free_port()
    with socket.socket() as own:
        own.bind(("127.0.0.1", port))
    assert SglangServer(cpu=False, port=port).url == f"http://127.0.0.1:{port}"


def test_a_log_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    server = FakeServer(tmp_path)
    server.log = tmp_path / "file" / "server.log"
    with pytest.raises(WorkError, match=r"server\.log cannot be written"):
        server.start()


def test_a_temporary_log_goes_when_all_went_well_and_stays_otherwise(tmp_path: Path) -> None:
    good = FakeServer(tmp_path)
    good.log, good._keep_log = None, False
    with good:
        good.wait_ready(20)
        assert good.log.exists()
    assert not good.log.exists()
    bad = FakeServer(tmp_path, "dies")
    bad.log, bad._keep_log = None, False
    with pytest.raises(WorkError), bad:
        bad.wait_ready(20)
    assert "the weights are missing" in bad.log.read_text()
    bad.log.unlink()


def test_a_server_that_was_not_started_says_so() -> None:
    server = SglangServer(cpu=False)
    with pytest.raises(WorkError, match="not started"):
        server.raise_if_dead()
    server.stop()


def test_a_server_is_started_once(serving: FakeServer) -> None:
    with pytest.raises(RuntimeError, match="make a new one"):
        serving.start()


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        SglangServer(cpu=False, model=tmp_path / "none").start()
    with pytest.raises(InputError, match=r"no config\.json"):
        SglangServer(cpu=False, model=tmp_path).start()


def test_arguments_that_the_manager_sets_itself_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--port"):
        SglangServer(["--port=80"], cpu=False).start()


def test_a_gpu_server_gets_the_arguments_and_nothing_of_the_standin(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    command = SglangServer(["--tp", "2"], cpu=False, model=tmp_path, port=31000).command()
    tail = ["--tp", "2", "--model-path", str(tmp_path), "--host", "127.0.0.1", "--port", "31000"]
    assert command == [sys.executable, "-m", "sglang.launch_server", *tail]


def test_the_last_resort_kills_a_whole_tree() -> None:
    nested = "import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', 'import time; time.sleep(60)'])"
    parent = subprocess.Popen([sys.executable, "-S", "-c", nested])
    children = wait_for(psutil.Process(parent.pid).children)
    process._kill_tree(parent.pid)
    parent.wait(10)
    wait_for(lambda: not running([child.pid for child in children]))


def test_ways_of_drafting(tmp_path: Path) -> None:
    assert speculation_args("none") == []
    assert "NGRAM" in speculation_args("ngram")
    standalone = speculation_args("standalone", draft=tmp_path)
    assert standalone[standalone.index("--speculative-draft-model-path") + 1] == str(tmp_path)
