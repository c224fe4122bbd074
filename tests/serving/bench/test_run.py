"""``laps-sd bench`` from the command line to the figures, on servers that answer without a model."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from laps_sd.cli import run
from laps_sd.data import builtin_trace, write_records
from laps_sd.data.prompts import generate_prompts
from laps_sd.predictors import fit_bundle

#: What the command line promises, literally.
WORKLOAD = {"n", "slots", "load", "seed"}
POLICY = {
    "latency_s", "ttft_s", "tpot_s", "slowdown_mean", "preemptions", "recomputed_tokens", "finished", "failed",
    "throughput_tokens_s", "rank_us_p50", "rank_us_p99", "gap_closed",
}  # fmt: skip
SPREAD = {"mean", "p50", "p90", "p99"}

Bench = Callable[..., dict[str, Any]]


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    """``bench("--url", URL, code=0)``: the JSON that it wrote, and what it said under ``said`` and ``warned``."""

    def go(*options: str, code: int = 0) -> dict[str, Any]:
        path = tmp_path / "figures.json"
        path.unlink(missing_ok=True)
        assert run(["bench", "--out", str(tmp_path / "out"), "--json", str(path), *options]) == code
        text = capsys.readouterr()
        figures = json.loads(path.read_text()) if path.exists() else {}
        return {**figures, "said": text.out, "warned": text.err}

    return go


def held_to_the_contract(result: dict[str, Any]) -> None:
    assert result["workload"].keys() >= WORKLOAD
    for figures in result["policies"].values():
        assert figures.keys() >= POLICY
        for name in ("latency_s", "ttft_s", "tpot_s"):
            assert figures[name].keys() == SPREAD


def test_a_running_server_is_measured_under_the_policy_that_it_reports(
    bench: Bench, fake_sglang: Any, tmp_path: Path
) -> None:
    report = tmp_path / "report.html"
    result = bench("--url", fake_sglang.url + "/", "--requests", "5", "--report", str(report))
    held_to_the_contract(result)
    assert list(result["policies"]) == ["hrrn"]
    figures = result["policies"]["hrrn"]
    assert (figures["finished"], figures["failed"], figures["rank_us_p50"]) == (5, 0, None)
    assert figures["accept_length_mean"] == 2.0
    facts = result["workload"]
    assert (facts["n"], facts["slots"], facts["model"], facts["draft"]) == (5, 7, "little", "NGRAM")
    assert f"{fake_sglang.url} schedules with hrrn" in result["said"]
    assert "without a chat template" in result["said"]
    assert "a server that ran already" in report.read_text()
    prompts = [prompt.prompt for prompt in generate_prompts(5, 0)]
    assert sorted(body["text"] for body in fake_sglang.bodies) == sorted(prompts)
    assert all(body["sampling_params"]["temperature"] == 0 for body in fake_sglang.bodies)


def test_the_policy_may_be_named_when_it_is_the_servers(bench: Bench, fake_sglang: Any) -> None:
    assert list(bench("--url", fake_sglang.url, "--requests", "2", "--policies", "hrrn")["policies"]) == ["hrrn"]
    assert "schedules with hrrn, not with laps-sd" in bench(
        "--url", fake_sglang.url, "--requests", "2", "--policies", "laps-sd", code=2
    )["warned"]  # fmt: skip
    assert len(fake_sglang.bodies) == 2, "nothing is sent to a server that is not the one meant"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--policies", "fcfs,laps-sd"), "one policy of that server, not fcfs, laps-sd"),
        (("--rounds", "2"), "--rounds cannot be had with --url"),
        (("--draft", "ngram", "--bundle", "b"), "--bundle, --draft cannot be had with --url"),
        (("--server-args", "--x"), "--server-args cannot be had with --url"),
    ],
)
def test_what_a_running_server_cannot_be_asked_is_refused(
    bench: Bench, fake_sglang: Any, options: tuple[str, ...], complaint: str
) -> None:
    assert complaint in bench("--url", fake_sglang.url, *options, code=2)["warned"]
    assert fake_sglang.bodies == []


def test_only_what_was_ranked_meanwhile_counts(bench: Bench, fake_sglang: Any) -> None:
    fake_sglang.info["schedule_policy"] = "laps-sd"
    line = 'laps_sd_rank_seconds_bucket{{le="{}"}} {}\n'
    fake_sglang.metrics = [
        line.format("1e-05", 0) + line.format("0.05", 1000) + line.format("+Inf", 1000),
        line.format("1e-05", 100) + line.format("0.05", 1100) + line.format("+Inf", 1100),
    ]
    figures = bench("--url", fake_sglang.url, "--requests", "2")["policies"]["laps-sd"]
    assert (figures["rank_us_p50"], figures["rank_us_p99"]) == pytest.approx((5.0, 9.9))


def test_the_policy_that_ranks_inside_laps_sd_is_the_one_measured(bench: Bench, fake_sglang: Any) -> None:
    fake_sglang.info["schedule_policy"] = "laps-sd"
    fake_sglang.info["internal_states"][0]["laps_sd"] = {"policy": "las"}
    fake_sglang.metrics = ["<html>no metrics</html>"]  # who has no times is measured all the same
    result = bench("--url", fake_sglang.url, "--requests", "2", "--policies", "las")
    assert list(result["policies"]) == ["las"]
    assert result["policies"]["las"]["rank_us_p50"] is None


def test_policies_of_ours_are_served_by_name(
    bench: Bench, started_servers: list[tuple[list[str], Any]], tmp_path: Path
) -> None:
    options = ("--policies", "hrrn,las,laps-sd:paper", "--requests", "2", "--rounds", "1", "--prompts")
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("one\ntwo\n")
    bundle = fit_bundle(list(builtin_trace("ngram"))[:200]).save(tmp_path / "bundle")
    result = bench(*options, str(prompts), "--bundle", str(bundle))
    assert list(result["policies"]) == ["hrrn", "las", "laps-sd:paper"]
    flag = "--schedule-policy"
    assert [args[args.index(flag) + 1] for args, _ in started_servers] == ["hrrn", "laps-sd", "laps-sd"]
    assert yaml.safe_load((tmp_path / "out" / "las-config.yaml").read_text()) == {"policy": {"name": "las"}}
    named = yaml.safe_load((tmp_path / "out" / "laps-sd-paper-config.yaml").read_text())
    assert named == {"policy": {"name": "laps-sd:paper"}}


def test_a_policy_that_no_server_can_have_is_refused(bench: Bench, tmp_path: Path) -> None:
    assert "unknown policy oracle-srpt" in bench("--policies", "fcfs,oracle-srpt", code=2)["warned"]


def test_a_key_opens_a_server_that_wants_one(bench: Bench, fake_sglang: Any) -> None:
    fake_sglang.key = "secret"
    assert "wants its API key" in bench("--url", fake_sglang.url, "--requests", "2", code=1)["warned"]
    result = bench("--url", fake_sglang.url, "--requests", "2", "--api-key", "secret")
    assert result["policies"]["hrrn"]["finished"] == 2


@pytest.mark.parametrize("info", [{}, {"model_path": "x"}, ["list"], {"schedule_policy": 3}])
def test_what_is_no_sglang_server_is_told(bench: Bench, fake_sglang: Any, info: Any) -> None:
    fake_sglang.info = info
    assert "is no SGLang server" in bench("--url", fake_sglang.url, code=1)["warned"]


def test_requests_that_fail_are_counted_and_all_of_them_end_the_run(bench: Bench, fake_sglang: Any) -> None:
    fake_sglang.answer = lambda body, number: (500, "broken") if number == 2 else (200, fake_sglang.meta())
    figures = bench("--url", fake_sglang.url, "--requests", "4")["policies"]["hrrn"]
    assert (figures["finished"], figures["failed"]) == (3, 1)
    aborted = fake_sglang.meta(finish_reason={"type": "abort", "message": "too long"})
    fake_sglang.answer = lambda body, number: (200, aborted)
    assert "no request succeeded under hrrn; the first failure was: aborted: too long" in bench(
        "--url", fake_sglang.url, "--requests", "4", code=1
    )["warned"]  # fmt: skip


TRACE = "a trace"
SHAPES: list[tuple[str, Any, list[str]]] = [
    ("p.txt", "Name a river\n\nName a sea\n", ["Name a river", "Name a sea"]),
    ("p.jsonl", '{"prompt": "Name a river"}\n{"prompt": "Name a sea"}\n', ["Name a river", "Name a sea"]),
    ("p.json", '[{"prompt": "Name a river"}]', ["Name a river"]),
    ("p.jsonl", '{"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"}]}\n', ["Hi"]),
    ("p.jsonl", '{"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]}\n', ["Hi"]),
    ("p.jsonl", '{"instruction": "Add", "input": "1 2", "output": "3"}\n', ["Add\n\n1 2"]),
    ("trace.jsonl", TRACE, [str(record.prompt) for record in builtin_trace("ngram")[:3]]),
    ("trace.parquet", TRACE, [str(record.prompt) for record in builtin_trace("ngram")[:3]]),
]


@pytest.mark.parametrize(("name", "content", "expected"), SHAPES, ids=lambda value: str(value)[:24])
def test_prompts_come_in_any_of_the_shapes(
    bench: Bench, fake_sglang: Any, tmp_path: Path, name: str, content: str, expected: list[str]
) -> None:
    path = tmp_path / name
    if content == TRACE:
        write_records(path, builtin_trace("ngram")[:3])
    else:
        path.write_text(content)
    result = bench("--url", fake_sglang.url, "--prompts", str(path))
    assert sorted(body["text"] for body in fake_sglang.bodies) == sorted(expected)
    assert result["workload"]["n"] == len(expected)
    assert f"holds {len(expected)} prompt" in result["warned"], "fewer than 32"


def test_the_first_prompts_of_a_file_are_sent_under_its_own_caps(
    bench: Bench, fake_sglang: Any, tmp_path: Path
) -> None:
    path = tmp_path / "p.jsonl"
    rows = [{"prompt": f"p{i}", "max_new_tokens": cap} for i, cap in enumerate((8, 500, None, 9))]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = bench("--url", fake_sglang.url, "--prompts", str(path), "--requests", "3", "--max-new-tokens", "64")
    caps = {body["text"]: body["sampling_params"]["max_new_tokens"] for body in fake_sglang.bodies}
    assert caps == {"p0": 8, "p1": 64, "p2": 64}
    assert result["warned"] == ""


@pytest.mark.parametrize(("name", "content"), [("p.txt", "\n"), ("p.jsonl", "[1]\n"), ("p.jsonl", "text\n")])
def test_a_file_without_prompts_is_refused_before_anything_is_asked(
    bench: Bench, fake_sglang: Any, tmp_path: Path, name: str, content: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    assert name in bench("--url", fake_sglang.url, "--prompts", str(path), code=2)["warned"]
    assert fake_sglang.bodies == []


@pytest.fixture
def chat_model(tmp_path: Path) -> Path:
    """A folder with a tokenizer of words and a chat template, and no weights."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"?": 0, "user": 1, "river": 2, "sea": 3}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?")
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "{{ m.role }} {{ m.content }} {% endfor %}"
    )
    tokenizer.save_pretrained(tmp_path / "chat")
    return tmp_path / "chat"


@pytest.mark.parametrize("named", [True, False])
def test_prompts_go_inside_the_models_chat_template(
    bench: Bench, fake_sglang: Any, tmp_path: Path, chat_model: Path, named: bool
) -> None:
    (tmp_path / "p.txt").write_text("river\nsea\n")
    if not named:
        fake_sglang.info["model_path"] = str(chat_model)
    model = ("--model", str(chat_model)) if named else ()
    result = bench("--url", fake_sglang.url, "--prompts", str(tmp_path / "p.txt"), *model)
    assert sorted(body["input_ids"] for body in fake_sglang.bodies) == [[1, 2], [1, 3]]
    assert "inside its chat template" in result["said"]
    (tmp_path / "s.jsonl").write_text(
        '{"id": "odd", "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "sea"}]}\n'
    )
    refused = bench("--url", fake_sglang.url, "--prompts", str(tmp_path / "s.jsonl"), *model, code=2)
    assert "chat template refuses prompt odd: no system" in refused["warned"]


def test_a_folder_without_a_tokenizer_has_no_template(bench: Bench, fake_sglang: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    refused = bench("--url", fake_sglang.url, "--model", str(tmp_path / "empty"), code=2)
    assert "holds no tokenizer that can be read" in refused["warned"]


def test_requests_arrive_at_the_rate(bench: Bench, fake_sglang: Any, tmp_path: Path) -> None:
    result = bench("--url", fake_sglang.url, "--requests", "12", "--rate", "40", "--seed", "3")
    assert (result["workload"]["rate"], result["workload"]["seed"]) == (40, 3)
    rows = [json.loads(line) for line in (tmp_path / "out" / "requests.jsonl").read_text().splitlines()]
    times = [row["arrival_s"] for row in rows]
    assert times == sorted(times)
    assert 0.05 < times[-1] - times[0] < 2


def test_every_policy_gets_the_same_requests_on_servers_of_its_own(
    bench: Bench, started_servers: list[tuple[list[str], Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laps_sd.serving.bench.run.demo_model", lambda: None)
    monkeypatch.setattr("laps_sd.serving.bench.load._tokenizer", lambda model, cpu: None)
    path = tmp_path / "p.txt"
    path.write_text("one\ntwo\nthree\n")
    result = bench(
        "--policies", "fcfs, hrrn", "--prompts", str(path), "--rounds", "2", "--server-args", '--x "a b"',
        "--slots", "3", "--report", str(tmp_path / "report.html"),
    )  # fmt: skip
    held_to_the_contract(result)
    assert list(result["policies"]) == ["fcfs", "hrrn"]
    assert (result["workload"]["n"], result["workload"]["slots"]) == (3, 3)
    assert result["policies"]["fcfs"]["finished"] == 6
    assert result["identical_tokens"] is True
    chosen = [args[args.index("--schedule-policy") + 1] for args, _ in started_servers]
    assert chosen == ["fcfs", "hrrn", "hrrn", "fcfs"], "there and back"
    assert all(args[-2:] == ["--x", "a b"] for args, _ in started_servers)
    assert all(sorted(b["text"] for b in fake.bodies) == ["one", "three", "two"] for _, fake in started_servers)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--model", "nowhere"), "the model folder nowhere does not exist"),
        (("--gpu", "--model", "nowhere"), "the model folder nowhere does not exist"),
        (("--draft", "standalone", "--draft-model", "nowhere"), "the model folder nowhere does not exist"),
        (("--draft-model", "."), "used with standalone drafts only"),
        (("--bundle", "nowhere"), "is not a bundle"),
        (("--policies", "fcfs,best"), "unknown policy best"),
        (("--policies", "fcfs,fcfs"), "named twice"),
        (("--policies", ","), "unknown policy (none)"),
        (("--server-args", '"'), "as in a shell"),
        (("--url", "foo"), "is no address of a server"),
        (("--url", "http://127.0.0.1:99999"), "is no address of a server"),
        (("--prompts", "nowhere.txt"), "nowhere.txt"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_long(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: tuple[str, ...], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("laps_sd.predictors.fit_bundle", lambda *_, **__: pytest.fail("trained"))
    assert complaint in bench(*options, code=2)["warned"]
    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        assert run(["bench", "--out", str(out)]) == 2
        assert str(out) in capsys.readouterr().err


def test_a_demo_of_no_model_leaves_nothing_behind_and_takes_nothing_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["demo", "--model", str(tmp_path / "nowhere"), "--out", str(tmp_path / "new")]) == 2
    assert "nowhere does not exist" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    earlier = tmp_path / "earlier" / "bundle"
    earlier.mkdir(parents=True)
    assert run(["demo", "--model", str(tmp_path), "--out", str(earlier.parent)]) == 2
    assert "holds no config.json" in capsys.readouterr().err
    assert earlier.is_dir()


@pytest.fixture
def without_a_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Prompts go as they are; returns a file of them."""
    monkeypatch.setattr("laps_sd.serving.bench.run.demo_model", lambda: None)
    monkeypatch.setattr("laps_sd.serving.bench.load._tokenizer", lambda model, cpu: None)
    path = tmp_path / "p.txt"
    path.write_text("one\ntwo\nthree\nfour\n")
    return path


def test_an_interrupted_comparison_goes_on_where_it_was(
    bench: Bench, started_servers: list[tuple[list[str], Any]], without_a_model: Path, tmp_path: Path
) -> None:
    options = ("--policies", "fcfs,hrrn", "--prompts", str(without_a_model), "--rounds", "2")
    whole = bench(*options)
    assert len(started_servers) == 4
    (tmp_path / "out" / "turns" / "1-fcfs.json").unlink()  # as if it had been interrupted in the last turn
    resumed = bench(*options, "--resume")
    assert len(started_servers) == 5
    assert resumed["policies"].keys() == whole["policies"].keys()
    assert resumed["policies"]["hrrn"] == whole["policies"]["hrrn"]
    assert "another comparison (seed differ)" in bench(*options, "--resume", "--seed", "9", code=2)["warned"]
    assert len(bench(*options)["policies"]) == 2
    assert len(started_servers) == 9, "without --resume everything anew"


def test_rounds_go_on_until_the_interval_is_narrow_and_no_further_than_allowed(
    bench: Bench, started_servers: list[tuple[list[str], Any]], without_a_model: Path
) -> None:
    options = ("--policies", "fcfs,hrrn", "--prompts", str(without_a_model), "--rounds", "1", "--max-rounds", "3")
    assert bench(*options, "--until-width", "1000")["workload"]["rounds"] == 1
    result = bench(*options, "--until-width", "0.001")
    assert result["workload"]["rounds"] == 3, "never as narrow as that"
    mean = result["ratios"]["hrrn"]["fcfs"]["latency_s"]["mean"]
    assert mean["low"] <= mean["ratio"] <= mean["high"]
    assert "hrrn / fcfs" in result["said"]


def test_requests_that_warm_up_are_sent_and_not_measured(
    bench: Bench, started_servers: list[tuple[list[str], Any]], without_a_model: Path
) -> None:
    result = bench("--policies", "fcfs", "--prompts", str(without_a_model), "--rounds", "1", "--warm-up", "3")
    assert len(started_servers[0][1].bodies) == 4
    assert result["policies"]["fcfs"]["finished"] == 1
    assert (
        "leave none"
        in bench("--policies", "fcfs", "--prompts", str(without_a_model), "--warm-up", "4", code=2)["warned"]
    )


def test_a_closed_loop_has_no_more_requests_under_way_than_clients(bench: Bench, fake_sglang: Any) -> None:
    under_way, most = [0], [0]
    lock = threading.Lock()

    def answer(body: dict[str, Any], number: int) -> tuple[int, Any]:
        with lock:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        time.sleep(0.02)
        with lock:
            under_way[0] -= 1
        return 200, fake_sglang.meta()

    fake_sglang.answer = answer
    result = bench("--url", fake_sglang.url, "--requests", "9", "--arrivals", "closed", "--clients", "3")
    assert result["policies"]["hrrn"]["finished"] == 9
    assert most[0] <= 3
    assert (result["workload"]["arrivals"], result["workload"]["clients"]) == ("closed", 3)


def test_a_trace_is_sent_at_its_own_times(bench: Bench, fake_sglang: Any, tmp_path: Path) -> None:
    records = [
        msgspec.structs.replace(record, arrival_s=7.0 + 0.1 * i) for i, record in enumerate(builtin_trace("ngram")[:3])
    ]
    write_records(tmp_path / "trace.parquet", records)
    bench("--url", fake_sglang.url, "--prompts", str(tmp_path / "trace.parquet"), "--arrivals", "trace")
    rows = [json.loads(line) for line in (tmp_path / "out" / "requests.jsonl").read_text().splitlines()]
    sent = [row["arrival_s"] for row in rows]
    assert sent[1] - sent[0] >= 0.09
    assert sent[2] - sent[0] >= 0.19


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--load", "0.9", "--rate", "2"), "and not both"),
        (("--arrivals", "trace"), "needs a trace"),
        (("--arrivals", "poisson"), "need a rate or a load"),
        (("--url", "http://127.0.0.1:9", "--clock", "rounds"), "--clock cannot be had with --url"),
    ],
)
def test_loads_that_contradict_themselves_are_refused(bench: Bench, options: tuple[str, ...], complaint: str) -> None:
    assert complaint in bench(*options, code=2)["warned"]
