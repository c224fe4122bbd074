"""Collecting: every prompt once, nothing lost, clear ends. A small HTTP server answers as SGLang does.

What a real server answers is checked in test_real_server.py.
"""

import json
import re
import threading
import time
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from laps_sd.cli import run
from laps_sd.data import Prompt, collect, read_records, write_records
from laps_sd.data.collection.prompt_file import read_prompts, write_prompts
from laps_sd.data.progress.counting import COUNTERS
from laps_sd.data.prompts import generate_prompts
from laps_sd.errors import InputError, WorkError

PROMPTS = generate_prompts(12, seed=0)
SERVER_INFO = {
    "model_path": "/models/little",
    "served_model_name": "/models/little",
    "speculative_algorithm": "STANDALONE",
    "speculative_draft_model_path": "/models/smaller",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}


class Engine:
    """What the server does: counts what it is asked, and can misbehave."""

    def __init__(self):
        self.asked = Counter()
        self.bodies = []
        self.under_way = 0
        self.most_under_way = 0
        self.delay_s = 0.0
        self.answer = lambda body: (200, meta_info())
        self.lock = threading.Lock()
        self.server = None
        self.key = None
        self.output_ids = [97, 98]
        self.message = {"content": "ab"}

    def enter(self, body):
        with self.lock:
            self.bodies.append(body)
            self.asked[prompt_in(body)] += 1
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)

    def die(self):
        self.server.shutdown()
        self.server.server_close()
        return 200, None

    def leave(self):
        with self.lock:
            self.under_way -= 1


def prompt_in(body):
    return body["text"] if "text" in body else str(body.get("input_ids") or body["messages"][-1]["content"])


def meta_info(**fields):
    return {
        "id": "x",
        "finish_reason": {"type": "stop", "matched": 2},
        "prompt_tokens": 20,
        "completion_tokens": 10,
        "spec_verify_ct": 4,
        "spec_correct_drafts_histogram": [1, 1, 2],
        "queue_time": 0.001,
        **fields,
    }


def handler(engine):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def send(self, status, content, kind="application/json"):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self):
            allowed = engine.key is None or self.headers["Authorization"] == f"Bearer {engine.key}"
            content = json.dumps(SERVER_INFO).encode() if self.path == "/server_info" else b""
            self.send(200 if allowed else 401, content if allowed else b"{}")

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            engine.enter(body)
            time.sleep(engine.delay_s)
            status, meta = engine.answer(body)
            engine.leave()
            if meta is None:
                self.close_connection = True
                self.connection.close()
            elif status != 200 or isinstance(meta, bytes):
                self.send(status, meta if isinstance(meta, bytes) else json.dumps(meta).encode())
            elif self.path == "/generate":
                first = json.dumps({"text": "a", "meta_info": {**meta, "finish_reason": None}})
                last = json.dumps({"text": "ab", "meta_info": meta, "output_ids": engine.output_ids})
                self.send(200, f"data: {first}\n\ndata: {last}\n\ndata: [DONE]\n\n".encode(), "text/event-stream")
            else:
                self.send(200, json.dumps({"choices": [{"message": engine.message, "meta_info": meta}]}).encode())

    return Handler


@contextmanager
def serving(engine, port=0):
    server = ThreadingHTTPServer(("127.0.0.1", port), handler(engine))
    server.daemon_threads = True
    engine.server = server
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def engine():
    return Engine()


@pytest.fixture
def url(engine):
    with serving(engine) as address:
        yield address


@pytest.mark.parametrize("endpoint", ["generate", "openai"])
def test_every_prompt_is_asked_once_and_recorded_with_all_that_is_known(engine, url, tmp_path, endpoint):
    out = tmp_path / "trace.parquet"
    engine.delay_s = 0.05
    summary = collect(url, PROMPTS, out, concurrency=3, max_new_tokens=50, temperature=0.5, endpoint=endpoint)
    assert (summary.recorded, summary.failed, summary.output_tokens) == (12, 0, 120)
    assert set(engine.asked.values()) == {1}
    assert 2 <= engine.most_under_way <= 3
    records = {record.request_id: record for record in read_records(out)}
    for prompt in PROMPTS:
        record = records[prompt.prompt_id]
        assert (record.prompt, record.category, record.group) == (prompt.prompt.strip(), prompt.category, prompt.group)
        assert (record.output_tokens, record.prompt_tokens, record.finish_reason) == (10, 20, "stop")
        assert (record.max_new_tokens, record.temperature) == (50, 0.5)
        assert (record.verify_steps, record.correct_drafts_histogram, record.max_correct_drafts) == (4, (1, 1, 2), 3)
        assert (record.model, record.draft) == ("little", "STANDALONE:smaller")
        assert record.queue_s == 0.001
        assert record.e2e_s >= 0
        assert (record.ttft_s is not None) == (endpoint == "generate")
    arrivals = [record.arrival_s for record in read_records(out)]
    assert arrivals == sorted(arrivals)
    assert list(tmp_path.iterdir()) == [out]


def test_a_whole_conversation_is_sent_and_its_turns_are_counted(engine, url, tmp_path):
    said = [("user", "Hello"), ("assistant", "Hi!"), ("user", "Is ice cold?")]
    prompt = Prompt("c1", "", messages=tuple({"role": role, "content": text} for role, text in said), max_new_tokens=17)
    collect(url, [prompt], tmp_path / "trace.jsonl", endpoint="openai")
    (record,) = read_records(tmp_path / "trace.jsonl")
    assert (record.prompt, record.turns, record.max_new_tokens) == ("Is ice cold?", 1, 17)
    assert [m["role"] for m in engine.bodies[0]["messages"]] == ["user", "assistant", "user"]
    assert engine.bodies[0]["max_tokens"] == 17


def test_an_answer_cut_by_the_cap_is_censored(engine, url, tmp_path):
    engine.answer = lambda body: (200, meta_info(finish_reason={"type": "length", "length": 10}))
    collect(url, PROMPTS[:1], tmp_path / "trace.jsonl", max_new_tokens=10)
    assert read_records(tmp_path / "trace.jsonl")[0].censored


def test_a_killed_run_goes_on_where_it_stopped(engine, url, tmp_path):
    out = tmp_path / "trace.jsonl"
    collect(url, PROMPTS[:5], tmp_path / "trace.jsonl")
    half = out.read_bytes()[:-30]  # as a kill in the middle of a line leaves it
    out.unlink()
    (tmp_path / "trace.jsonl.partial.jsonl").write_bytes(half)
    with pytest.raises(InputError, match="holds an earlier run; add --resume"):
        collect(url, PROMPTS, out)
    summary = collect(url, PROMPTS, out, resume=True)
    assert (summary.recorded, summary.resumed) == (12, 4)
    assert sorted(engine.asked.values()) == [1] * 11 + [2]  # only the half-written one was asked again
    assert {record.request_id for record in read_records(out)} == {prompt.prompt_id for prompt in PROMPTS}


def test_a_finished_trace_grows_by_the_new_prompts_only(engine, url, tmp_path):
    out = tmp_path / "trace.parquet"
    collect(url, PROMPTS[:5], out)
    summary = collect(url, PROMPTS, out, resume=True)
    assert (summary.recorded, summary.resumed, engine.asked.total()) == (12, 5, 12)
    again = collect(url, PROMPTS, out, resume=True)
    assert (again.recorded, again.output_tokens, engine.asked.total()) == (12, 0, 12)


class Letters:
    """A tokenizer of one token per ASCII character."""

    def __len__(self):
        return 128

    def encode(self, text, *, add_special_tokens=True):
        return [ord(letter) for letter in text if ord(letter) < 128]

    def decode(self, token_ids, *, skip_special_tokens=False):
        return "".join(map(chr, token_ids))

    def apply_chat_template(self, conversation, *, tokenize=True, add_generation_prompt=False):
        return conversation[-1]["content"]


@pytest.mark.parametrize(
    ("endpoint", "changes", "rows"),
    [
        ("generate", {}, 1),
        ("generate", {"output_ids": [97] * 3}, 0),  # the end of the stream and not all of it
        ("openai", {}, 1),
        ("openai", {"message": {"content": "word " * 10, "reasoning_content": "hm"}}, 0),
    ],
)
def test_what_an_answer_said_is_counted_with_the_models_tokenizer(engine, url, tmp_path, endpoint, changes, rows):
    engine.answer = lambda body: (200, meta_info(completion_tokens=51))
    engine.output_ids, engine.message = [ord(letter) for letter in "word " * 10 + "."], {"content": "word " * 10 + "."}
    for name, value in changes.items():
        setattr(engine, name, value)
    out = tmp_path / "trace.parquet"
    collect(url, PROMPTS[:1], out, endpoint=endpoint, tokenizer=Letters())
    (record,) = read_records(out)
    assert len(record.progress or ()) == rows * len(COUNTERS)
    assert (record.progress_table is not None) == bool(rows)


def test_a_server_that_dies_ends_the_run_and_what_was_recorded_stays(engine, tmp_path):
    out = tmp_path / "trace.jsonl"
    with serving(engine) as url:
        port = int(url.rsplit(":", 1)[1])
        engine.answer = lambda body: (200, meta_info()) if engine.asked.total() <= 4 else engine.die()
        with pytest.raises(
            WorkError, match=r"stopped answering.*; 4 records are kept in .*partial\.jsonl, go on with --resume"
        ):
            collect(url, PROMPTS, out, concurrency=1)
    assert not out.exists()
    assert len(read_records(tmp_path / "trace.jsonl.partial.jsonl")) == 4
    engine.answer = lambda body: (200, meta_info())
    with serving(engine, port) as url:
        assert collect(url, PROMPTS, out, resume=True).recorded == 12


def test_nobody_at_the_address_is_said_at_once_and_leaves_nothing_to_resume(tmp_path):
    with pytest.raises(
        WorkError, match=r"no server answers at http://127\.0\.0\.1:9.*start one or correct the address"
    ):
        collect("http://127.0.0.1:9", PROMPTS, tmp_path / "trace.jsonl")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", ["127.0.0.1:30000", "ftp://x", "http://", "nonsense", "http://127.0.0.1:99999"])
def test_an_address_that_is_none_is_wrong_usage(tmp_path, address):
    with pytest.raises(InputError, match="is no address of a server; expected something like http"):
        collect(address, PROMPTS, tmp_path / "trace.jsonl")


def test_a_name_that_tells_no_format_is_refused_before_anything_is_asked(engine, url, tmp_path):
    with pytest.raises(InputError, match="expected a name that ends in"):
        collect(url, PROMPTS, tmp_path / "trace.txt")
    assert engine.asked.total() == 0


def test_the_key_of_the_server_is_sent(engine, url, tmp_path):
    engine.key = "secret"
    with pytest.raises(WorkError, match="wants its API key; give it with --api-key"):
        collect(url, PROMPTS[:1], tmp_path / "trace.jsonl")
    assert collect(url, PROMPTS[:1], tmp_path / "trace.jsonl", api_key="secret").recorded == 1


def test_something_else_at_the_address_is_said(engine, url, tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "SERVER_INFO", {"hello": "world"})
    with pytest.raises(WorkError, match=r"is no SGLang server \(HTTP 200\)"):
        collect(url, PROMPTS, tmp_path / "trace.jsonl")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((400, {"error": {"message": "too long"}}), "HTTP 400: .*too long"),
        ((200, b"<html>"), "closed the stream without an answer"),
        ((200, meta_info(finish_reason=None)), "expected finish_reason"),
        ((200, meta_info(completion_tokens=999)), "output_tokens: expected at most max_new_tokens"),
        ((200, meta_info(spec_verify_ct=9)), "correct_drafts_histogram: expected counts that add up"),
    ],
)
def test_one_refused_request_is_reported_and_the_others_go_on(engine, url, tmp_path, answer, reason):
    out = tmp_path / "trace.jsonl"
    unlucky = PROMPTS[3].prompt
    engine.answer = lambda body: answer if prompt_in(body) == unlucky else (200, meta_info())
    summary = collect(url, PROMPTS, out)
    assert (summary.recorded, summary.failed) == (11, 1)
    assert summary.failures[0].startswith(PROMPTS[3].prompt_id)
    assert re.search(reason, summary.failures[0])
    engine.answer = lambda body: (200, meta_info())
    assert collect(url, PROMPTS, out, resume=True).recorded == 12  # the failed one is asked again


def test_a_server_that_refuses_everything_ends_the_run_early(engine, url, tmp_path):
    engine.answer = lambda body: (500, {"error": "broken"})
    prompts = generate_prompts(100, seed=0)
    with pytest.raises(WorkError, match=r"\d+ requests failed one after the other, the last one .*HTTP 500"):
        collect(url, prompts, tmp_path / "trace.jsonl", concurrency=4)
    assert engine.asked.total() <= 12


def test_an_answer_that_does_not_come_in_time_is_a_failure(engine, url, tmp_path):
    engine.delay_s = 0.6
    with pytest.raises(WorkError, match=r"no request succeeded; the first failure was: .*no answer in time"):
        collect(url, PROMPTS[:1], tmp_path / "trace.jsonl", timeout_s=0.2)


def test_prompts_are_sent_at_their_arrival_times(engine, url, tmp_path):
    out = tmp_path / "trace.jsonl"
    collect(url, PROMPTS[:4], out, arrivals=[0.0, 0.15, 0.15, 0.4])
    assert [record.arrival_s for record in read_records(out)] == pytest.approx([0.0, 0.15, 0.15, 0.4], abs=0.1)


def test_the_command_line_collects_and_says_what_happened(engine, url, tmp_path, capsys):
    prompts, out, report = tmp_path / "prompts.jsonl", tmp_path / "trace.parquet", tmp_path / "report.json"
    assert run(["data", "prompts", "--n", "6", "--out", str(prompts)]) == 0
    arguments = ["collect", "--url", url, "--prompts", str(prompts), "--out", str(out), "--max-new-tokens", "50"]
    assert run([*arguments, "--concurrency", "2", "--json", str(report)]) == 0
    assert json.loads(report.read_text())["recorded"] == 6
    assert "6 records in" in capsys.readouterr().err
    assert run(arguments) == 2
    assert "add --resume" in capsys.readouterr().err
    assert run([*arguments, "--resume"]) == 0
    assert engine.asked.total() == 6


def test_the_command_line_exits_with_1_when_no_server_answers(tmp_path, capsys):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("Hello\n\nIs ice cold?\n", encoding="utf-8")
    out = str(tmp_path / "trace.jsonl")
    assert run(["collect", "--url", "http://127.0.0.1:9", "--prompts", str(prompts), "--out", out]) == 1
    error = capsys.readouterr().err
    assert error.startswith("laps-sd: no server answers")
    assert "Traceback" not in error


# Prompt files


def test_prompt_files_round_trip_and_take_traces_chats_and_text(tmp_path, write_lines, make_record):
    path = tmp_path / "prompts.jsonl"
    assert write_prompts(path, PROMPTS) == 12
    assert read_prompts(path) == PROMPTS
    write_records(tmp_path / "trace.parquet", [make_record("r9", prompt="Again", category="x", max_new_tokens=99)])
    assert read_prompts(tmp_path / "trace.parquet") == [Prompt("r9", "Again", category="x", max_new_tokens=99)]
    chat = write_lines(
        {"id": 7, "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "x"}]}
    )
    assert [(p.prompt_id, p.conversation) for p in read_prompts(chat)] == [("7", [{"role": "user", "content": "Hi"}])]
    (tmp_path / "p.txt").write_text("One\n\nTwo\u2028still two\n", encoding="utf-8")
    assert [p.prompt for p in read_prompts(tmp_path / "p.txt")] == ["One", "Two\u2028still two"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ({"prompt": 5}, "line 1: expected an object with `conversations`"),
        ({"prompt": "a", "max_new_tokens": "many"}, "line 1: max_new_tokens: expected a number"),
        ("text", "line 1: expected an object with a prompt, got str"),
        ({"messages": [{"role": "system", "content": "x"}]}, "line 1: expected a user turn, found none"),
    ],
)
def test_bad_prompt_files_are_told_by_line(write_lines, line, sentence):
    with pytest.raises(InputError) as refusal:
        read_prompts(write_lines(line))
    assert sentence in str(refusal.value)


def test_two_prompts_with_one_id_are_refused(write_lines):
    with pytest.raises(InputError, match="line 2: prompt_id: expected a name that no earlier row has"):
        read_prompts(write_lines({"prompt": "a", "id": "x"}, {"prompt": "b", "id": "x"}))
