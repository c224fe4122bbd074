"""What ends how: every way in which a request ends, made to happen on real CPU servers, as a table.

.venv/bin/python benchmarks/endings.py
"""

import argparse
import itertools
import json
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml
from soak_client import abort_request
from soak_inside import Fault, install

from laps_sd.data import read_records
from laps_sd.data.builtin import builtin_trace
from laps_sd.errors import WorkError
from laps_sd.predictors import fit_bundle
from laps_sd.serving.cpu.model import draft_model
from laps_sd.serving.process.exposition import samples_of
from laps_sd.serving.process.server import SglangServer

#: Two requests of a row run at the same time; together they may outgrow the KV memory.
SERVER = [
    *("--max-running-requests", "2", "--max-total-tokens", "600", "--disable-overlap-schedule"),
    *("--enable-metrics", "--schedule-policy", "laps-sd"),
]
LONG, GROWING = 250, 400
NO_END = {"logit_bias": {"0": -100, "2": -100}}  # the model's end tokens
#: Longest that a condition may take to come true, seconds.
PATIENCE_S = 300.0
_NUMBERS = itertools.count()
#: Our counters that tell how requests end; the others tell what each request cost.
COUNTERS = {
    "laps_sd_preemptions_total": "reason",
    "laps_sd_length_log_error_count": "",
    "laps_sd_rejected_hints_total": "reason",
    "laps_sd_fallbacks_total": "hook",
    "laps_sd_unrecorded_requests_total": "",
}


class Asked:
    """A streamed request under way; ``events`` are what its client has received.

    Parameters
    ----------
    url : str
        The server.
    rid : str
    sampling : dict
    hint : object
        What its client says in ``custom_params``.
    hangs_up : bool
        The client goes away after the first event.
    """

    def __init__(self, url: str, rid: str, sampling: dict[str, Any], hint: object = None, *, hangs_up: bool = False):
        self.rid, self.url, self.hangs_up = rid, url, hangs_up
        params = {"temperature": 0, **sampling, "custom_params": None if hint is None else {"laps_sd": hint}}
        self.body = {"text": f"Once upon a time, {rid}", "rid": rid, "stream": True, "sampling_params": params}
        self.events: list[dict[str, Any]] = []
        self.broken = ""
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        try:
            with httpx.stream("POST", self.url + "/generate", json=self.body, timeout=900, trust_env=False) as stream:
                for line in stream.iter_lines():
                    if line.startswith("data:") and "[DONE]" not in line:
                        self.events.append(json.loads(line[5:]))
                    if self.hangs_up and self.events:
                        return
        except httpx.HTTPError as error:
            self.broken = type(error).__name__

    def runs(self) -> "Asked":
        """Return once the first token is there."""
        wait(f"{self.rid} runs", lambda: bool(self.events) or not self.thread.is_alive())
        return self

    def ended(self) -> "Asked":
        """Return once it has ended."""
        self.thread.join(PATIENCE_S)
        if self.thread.is_alive():
            raise WorkError(f"{self.rid} did not end within {PATIENCE_S:.0f} s")
        return self

    @property
    def meta(self) -> dict[str, Any]:
        """``meta_info`` of the last event."""
        return self.events[-1].get("meta_info", {}) if self.events else {}

    def received(self) -> str:
        """Say what the client has."""
        if self.hangs_up:
            return "nothing more"
        error = self.events[-1].get("error") if self.events else None
        if error is not None:
            return f"an error, status {error['code']}"
        tokens = "its tokens so far" if self.meta.get("completion_tokens") else "no token"
        if self.broken:
            return f"{tokens}, then a broken connection"
        reason = self.meta["finish_reason"]["type"]
        return f"its answer, `{reason}`" if reason != "abort" else f"{tokens}, `abort`"

    def fields(self) -> str:
        """Say what of ours came with it."""
        ours = self.meta.get("laps_sd")
        if ours is None:
            return "none"
        return "all" if not ours["preemptions"] else "all; `preemptions` counts it"


def wait(what: str, true: Callable[[], bool]) -> None:
    """Return once something is true."""
    until = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > until:
            raise WorkError(f"not within {PATIENCE_S:.0f} s: {what}")
        time.sleep(0.02)


@dataclass(slots=True)
class Row:
    """One row of the table.

    Attributes
    ----------
    what : str
        How the request ended.
    asked : Asked
        The request.
    counted : list of str
        Our counters that grew meanwhile, with their labels.
    recorded : str
        Why it ended, as the record says.
    """

    what: str
    asked: Asked
    counted: list[str] = field(default_factory=list)
    recorded: str = "no row"

    def __str__(self) -> str:
        """Return the row in Markdown."""
        counted = ", ".join(f"`{name}`" for name in self.counted) or "–"
        return f"| {self.what} | {self.asked.received()} | {self.asked.fields()} | {counted} | {self.recorded} |"


HEAD = '| it ends by | its client receives | `meta_info["laps_sd"]` | counted (`laps_sd_…`) | its row in the record |'


def counters(url: str) -> dict[str, float]:
    """Return our counters, named with their labels."""
    text = httpx.get(url + "/metrics", timeout=60, trust_env=False).text
    found = {}
    for sample, labels, value in samples_of(text):
        if sample in COUNTERS:
            label = COUNTERS[sample]
            named = f"{{{label}={labels[label]}}}" if label else ""
            found[sample.removeprefix("laps_sd_") + named] = value
    return found


def waiting(url: str) -> bool:
    """Whether somebody is in the queue."""
    text = httpx.get(url + "/metrics", timeout=60, trust_env=False).text
    return any(
        name == "laps_sd_requests" and labels["phase"] == "waiting" and value
        for name, labels, value in samples_of(text)
    )


# --- the ways to end ------------------------------------------------------------------------------------------


def by_itself(url: str) -> Asked:
    return Asked(url, "itself", {"max_new_tokens": 100, "stop": [" ", "e", "."]}).ended()


def by_limit(url: str) -> Asked:
    return Asked(url, "limit", {"max_new_tokens": 5, "ignore_eos": True}).ended()


def refused(url: str) -> Asked:
    return Asked(url, "refused", {"max_new_tokens": -1}).ended()


def without_grammar(url: str) -> Asked:
    return Asked(url, "grammar", {"max_new_tokens": 5, "regex": "((("}).ended()


def aborted_waiting(url: str) -> Asked:
    with others(url, 2, priority=50):
        asked = Asked(url, "waits", {"max_new_tokens": 5})
        wait("somebody waits", lambda: waiting(url))
        abort_request(url, asked.rid)
        return asked.ended()


def aborted_running(url: str) -> Asked:
    asked = Asked(url, "runs", {"max_new_tokens": LONG, "ignore_eos": True}).runs()
    abort_request(url, asked.rid)
    return asked.ended()


def aborted_preempted(url: str) -> Asked:
    with preempted(url, "preempted", LONG) as asked:
        abort_request(url, asked.rid)
        return asked.ended()


def resumed(url: str) -> Asked:
    with preempted(url, "resumed", LONG) as asked:
        pass
    return asked.ended()


def hung_up(url: str) -> Asked:
    return Asked(url, "gone", {"max_new_tokens": LONG, "ignore_eos": True}, hangs_up=True).ended()


def invalid_hint(url: str) -> Asked:
    return Asked(url, "hint", {"max_new_tokens": 5, "ignore_eos": True}, {"expected_output_tokens": -1}).ended()


def retracted(url: str) -> Asked:
    """Two that say they are short, and together outgrow the KV memory."""
    sampling = {"max_new_tokens": GROWING, **NO_END}
    both = [Asked(url, f"grows-{i}", sampling, {"expected_output_tokens": 5}) for i in range(2)]
    for asked in both:
        asked.ended()
    return max(both, key=lambda asked: asked.meta["num_retractions"])


def by_failing_hook(url: str) -> Asked:
    return Asked(url, "hook", {"max_new_tokens": 30, "ignore_eos": True}).ended()


def after_failed_hook(url: str) -> Asked:
    return Asked(url, "later", {"max_new_tokens": 5, "ignore_eos": True}).ended()


@contextmanager
def others(url: str, count: int, priority: int) -> Iterator[None]:
    """Occupy ``count`` slots until the end of the block."""
    sampling = {"max_new_tokens": LONG, "ignore_eos": True}
    started = [Asked(url, f"other-{next(_NUMBERS)}", sampling, {"priority": priority}) for _ in range(count)]
    try:
        for one in started:
            one.runs()
        yield
    finally:
        for one in started:
            abort_request(url, one.rid)
            one.ended()


@contextmanager
def preempted(url: str, rid: str, tokens: int) -> Iterator[Asked]:
    """A request that has lost its slot, and gets it back at the end of the block."""
    asked = Asked(url, rid, {"max_new_tokens": tokens, "ignore_eos": True}).runs()
    slots = "preemptions_total{reason=slots}"
    before = counters(url).get(slots, 0)
    with others(url, 2, priority=50):
        wait(f"{rid} is preempted", lambda: counters(url).get(slots, 0) > before)
        yield asked


Way = Callable[[str], Asked]
WAYS: dict[str, Way] = {
    "its end token or a stop string": by_itself,
    "its limit": by_limit,
    "a refusal of its parameters": refused,
    "its grammar, which does not compile": without_grammar,
    "an abort while it waits": aborted_waiting,
    "an abort while it runs": aborted_running,
    "an abort after it has lost its slot": aborted_preempted,
    "its limit, after it had lost its slot": resumed,
    "its client hanging up": hung_up,
    "its limit, with an invalid hint": invalid_hint,
    "its limit, after SGLang had retracted it for want of KV memory": retracted,
}
FAULTY_WAYS: dict[str, Way] = {
    "its limit, after a hook of ours has failed": by_failing_hook,
    "its limit, begun after that": after_failed_hook,
}
KILLED = "the server being killed"


def observe(folder: Path) -> list[Row]:
    """Make every ending happen; ``folder`` receives logs and configurations."""
    bundle = fit_bundle(builtin_trace(), predictor="prompt_length").save(folder / "bundle")
    fault = Fault("laps_sd.serving.requests.scheduler_side:SchedulerSide.on_step", 12, "ValueError")
    rows = on_one_server(folder / "sound", WAYS, bundle)
    return rows + on_one_server(folder / "faulty", FAULTY_WAYS, bundle, fault)


def on_one_server(folder: Path, ways: dict[str, Way], bundle: Path, fault: Fault | None = None) -> list[Row]:
    """Observe requests that end in these ways, one after the other, and of the sound server the last: it is killed."""
    folder.mkdir()
    trace, config = folder / "trace.jsonl", folder / "config.yaml"
    said = {"policy": {"recompute_weight": 0}, "hints": {"priority": True}, "record": {"path": str(trace)}}
    config.write_text(yaml.safe_dump(said), encoding="utf-8")
    args = [*SERVER, "--laps-sd-bundle", str(bundle), "--laps-sd-config", str(config)]
    env = {} if fault is None else install(folder / "inside", fault)
    rows = []
    with SglangServer(args, cpu=True, model=draft_model(8), log=folder / "server.log", env=env) as server:
        server.wait_ready()
        for what, way in ways.items():
            before = counters(server.url)
            asked = way(server.url)
            settle(server)
            after = counters(server.url)
            rows.append(Row(what, asked, [name for name, value in after.items() if value > before.get(name, 0)]))
        if fault is None:
            asked = Asked(server.url, "killed", {"max_new_tokens": LONG, "ignore_eos": True}).runs()
            time.sleep(2.0)  # for the record: it is written within a second
            for process in [*psutil.Process(server.pid).children(recursive=True), psutil.Process(server.pid)]:
                process.send_signal(signal.SIGKILL)
            rows.append(Row(KILLED, asked.ended()))
    reasons: dict[str, str] = {record.request_id: record.finish_reason for record in read_records(trace)}
    for row in rows:
        if row.asked.rid in reasons:
            row.recorded = f"`{reasons[row.asked.rid]}`"
    return rows


def settle(server: SglangServer) -> None:
    """Wait until nothing runs or waits."""
    flush = server.url + "/flush_cache"
    wait("idle", lambda: httpx.post(flush, timeout=60, trust_env=False).status_code == 200)


def as_markdown(rows: list[Row]) -> str:
    """Return the table."""
    return "\n".join([HEAD, "|---|---|---|---|---|", *map(str, rows)])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(as_markdown(observe(Path(folder))))


if __name__ == "__main__":
    main()
