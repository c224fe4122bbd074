"""laps-sd on a real SGLang server: the same answers as fcfs, sooner for short requests, and nothing lost."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from laps_sd.data import RequestRecord, read_records
from laps_sd.data.collection.server import server_info
from laps_sd.data.progress.classes import TokenClasses
from laps_sd.data.tokenizer import load_tokenizer
from laps_sd.predictors import fit_bundle
from laps_sd.predictors.progress.refiner import Refiner
from laps_sd.serving.bench.load import LoadRequest, LoadResult, send_load
from laps_sd.serving.cpu.launch import environment
from laps_sd.serving.cpu.model import draft_model
from laps_sd.serving.monitoring.live import look
from laps_sd.serving.monitoring.served import Served
from laps_sd.serving.process.server import SglangServer
from laps_sd.serving.process.speculation import speculation_args

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]

#: Few slots, so that a burst queues.
SLOTS = 2
LONG, SHORT = 72, 6
COMMON = [*speculation_args("ngram"), "--max-running-requests", str(SLOTS), "--enable-metrics"]


def is_long(prompt: str) -> bool:
    return prompt.startswith("Write a long story")


@pytest.fixture(scope="session")
def small_model() -> Path:
    """The demo model's first 8 layers: fast nonsense, the same nonsense every time."""
    return draft_model(8)


@pytest.fixture(scope="session")
def refiner(model_folder: Path, make_refiner: Callable[..., Refiner]) -> Refiner:
    """After 32 and 64 tokens with few sentences much is left, with many next to nothing; of the demo's tokenizer."""
    return make_refiner(TokenClasses.of(load_tokenizer(str(model_folder))).name, [32, 64], sentences=4.0)


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory, refiner: Refiner) -> Path:
    """Predictors that learned: stories are long, sums are short."""
    records = []
    for i in range(240):
        long = i % 2 == 0
        tokens = (60 + i % 40) if long else 4 + i % 5
        steps = max(tokens // 2, 1)
        records.append(
            RequestRecord(
                request_id=f"r{i}",
                prompt=prompts(i, long),
                prompt_tokens=12,
                output_tokens=tokens,
                finish_reason="stop",
                max_new_tokens=128,
                draft="NGRAM",
                max_correct_drafts=7,
                verify_steps=steps,
                correct_drafts_histogram=(0, steps),
            )
        )
    fitted = fit_bundle(records)
    fitted.refinement = refiner
    return fitted.save(tmp_path_factory.mktemp("bundle") / "bundle")


def prompts(i: int, long: bool) -> str:
    return f"Write a long story about number {i}." if long else f"What is {i} plus 3? Answer with one number."


def burst(n: int = 24) -> list[LoadRequest]:
    """Long requests first, then short ones while those run: fcfs would make the short ones wait."""
    requests = []
    for i in range(n):
        long = i < n // 4
        sampling = {"temperature": 0, "max_new_tokens": LONG if long else SHORT, "ignore_eos": True}
        body = {"text": prompts(i, long), "sampling_params": sampling}
        requests.append(LoadRequest(f"q{i}", body, 0.0 if long else 0.6 + 0.02 * i))
    return requests


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("record") / "trace.jsonl"


@pytest.fixture
def laps(server_factory: Callable[..., SglangServer], bundle: Path, small_model: Path, trace: Path) -> SglangServer:
    config = trace.parent / "config.yaml"
    # Resuming a small model on a CPU costs a whole step, so that the default would seldom find it worth it.
    free = {"recompute_weight": 0}
    record, trusted = {"path": str(trace), "prompts": "text"}, {"priority": True}
    config.write_text(yaml.safe_dump({"record": record, "policy": free, "hints": trusted}))
    args = [*COMMON, "--schedule-policy", "laps-sd", "--laps-sd-bundle", str(bundle), "--laps-sd-config", str(config)]
    return server_factory(args, model=small_model)


@pytest.fixture(scope="session")
def fcfs_answers(server_factory: Callable[..., SglangServer], small_model: Path) -> list[LoadResult]:
    return send_load(server_factory(COMMON, model=small_model).url, burst())


def post(server: SglangServer, path: str, body: dict[str, Any]) -> Any:
    answer = httpx.post(server.url + path, json=body, timeout=300, trust_env=False)
    return answer.raise_for_status().json()


def generate(server: SglangServer, text: str, **sampling: Any) -> Any:
    body = {"text": text, "sampling_params": {"temperature": 0, "max_new_tokens": 4, **sampling}}
    return post(server, "/generate", body)


def test_short_requests_preempt_and_every_token_stays_the_same(
    fcfs_answers: list[LoadResult], laps: SglangServer
) -> None:
    answers = send_load(laps.url, burst())
    assert [a.error for a in answers] == [None] * len(answers)
    assert [a.output_ids for a in answers] == [a.output_ids for a in fcfs_answers]
    fields = [a.meta_info["laps_sd"] for a in answers]
    assert sum(f["preemptions"] for f in fields) >= 1
    assert all(f["recomputed_tokens"] <= 4 * f["preemptions"] for f in fields), "resumed from the radix cache"
    assert all(f["accept_length"] >= 1 for f in fields if f["steps"])
    assert any(f["accept_length"] > 1 for f in fields if f["steps"])

    def mean(results: list[LoadResult], long: bool) -> float:
        some = [
            r.finish_s - r.arrival_s for r, q in zip(results, burst(), strict=True) if is_long(q.body["text"]) is long
        ]
        return sum(some) / len(some)

    assert mean(answers, False) / mean(answers, True) < mean(fcfs_answers, False) / mean(fcfs_answers, True)


def test_lengths_are_refined_in_flight_and_every_token_stays_the_same(
    server_factory: Callable[..., SglangServer], laps: SglangServer, small_model: Path
) -> None:
    """Answers that might end by themselves at any token: the length of others is known."""
    endless = {"temperature": 0, "max_new_tokens": 80, "logit_bias": {"0": -100, "2": -100}}  # the model's end tokens
    load = [LoadRequest(f"q{i}", {"text": prompts(i, True), "sampling_params": endless}, 0.0) for i in range(6)]
    plain = send_load(server_factory(COMMON, model=small_model).url, load)
    refined = send_load(laps.url, load)
    assert [a.output_ids for a in refined] == [a.output_ids for a in plain]
    fields = [a.meta_info["laps_sd"] for a in refined]
    refinements = [f["refinements"] for f in fields]  # none of a request that ran while nobody waited
    assert max(refinements) == 2, refinements
    assert sum(refinements) >= 4, refinements
    assert all(32 < f["refined_tokens"] <= 80 for f in fields if f["refinements"])
    text = httpx.get(laps.url + "/metrics", timeout=60, trust_env=False).text
    assert sum(map(float, re.findall(r"(?m)^laps_sd_refinements_total\S* (\S+)$", text))) >= sum(refinements)
    short = generate(laps, prompts(1, False))["meta_info"]["laps_sd"]
    assert (short["refinements"], short["refined_tokens"]) == (0, None)


def test_one_prompt_gets_one_prediction_through_every_endpoint(laps: SglangServer) -> None:
    prompt = "Write a long story about number 7."
    template = f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
    ids = post(laps, "/tokenize", {"prompt": template, "model": "default"})["tokens"]
    sampling = {"temperature": 0, "max_new_tokens": 96}
    chat = {"model": "default", "temperature": 0, "max_tokens": 96, "return_meta_info": True}
    answers = [
        post(laps, "/generate", {"text": prompt, "sampling_params": sampling}),
        post(laps, "/generate", {"text": template, "sampling_params": sampling}),
        post(laps, "/generate", {"input_ids": ids, "sampling_params": sampling}),
        post(laps, "/v1/chat/completions", {**chat, "messages": [{"role": "user", "content": prompt}]})["choices"][0],
    ]
    predicted = [answer["meta_info"]["laps_sd"]["predicted_accept_length"] for answer in answers]
    assert len(set(predicted)) == 1
    lengths = [answer["meta_info"]["laps_sd"]["predicted_tokens"] for answer in answers]
    assert max(lengths) == pytest.approx(min(lengths), rel=0.35), "only the template's own tokens may differ"
    completion = post(laps, "/v1/completions", {"model": "default", "prompt": prompt, "max_tokens": 4})
    assert completion["usage"]["completion_tokens"] <= 4


def test_batches_samples_and_streams_are_predicted_too(laps: SglangServer) -> None:
    batch = {"text": [prompts(i, False) for i in range(3)], "sampling_params": {"temperature": 0, "max_new_tokens": 4}}
    several = {"text": prompts(1, False), "sampling_params": {"temperature": 0.8, "max_new_tokens": 4, "n": 3}}
    for answers in (post(laps, "/generate", batch), post(laps, "/generate", several)):
        assert len(answers) == 3
        assert all(a["meta_info"]["laps_sd"]["predicted_tokens"] is not None for a in answers)
    body = {"text": prompts(2, False), "sampling_params": {"temperature": 0, "max_new_tokens": 6}, "stream": True}
    with httpx.stream("POST", laps.url + "/generate", json=body, timeout=300, trust_env=False) as stream:
        lines = [line[5:].strip() for line in stream.iter_lines() if line.startswith("data:")]
    final = json.loads(lines[-2])["meta_info"]
    assert lines[-1] == "[DONE]"
    assert final["laps_sd"]["predicted_tokens"] is not None


def test_structured_output_still_obeys_its_grammar(laps: SglangServer) -> None:
    answer = generate(laps, "A digit:", regex="[0-9]{3}", max_new_tokens=8, custom_params={"laps_sd": {"priority": 1}})
    assert len(answer["text"]) == 3
    assert answer["text"].isdigit()


@pytest.mark.parametrize(
    "params",
    [
        {"laps_sd": {"expected_output_tokens": "many", "priority": 1e99}},
        {"laps_sd": [1, 2]},
        {"laps_sd": {"deadline": 1}},
        {"__laps_sd__": {"edges": [0, 1], "survival": [9, 9]}},
        {"__laps_sd__": "forged"},
        {"other": 1},
    ],
)
def test_a_bad_hint_fails_no_request_and_changes_no_prediction(laps: SglangServer, params: dict[str, Any]) -> None:
    plain = generate(laps, prompts(3, False))["meta_info"]["laps_sd"]
    hinted = generate(laps, prompts(3, False), custom_params=params)["meta_info"]["laps_sd"]
    assert hinted["predicted_tokens"] == plain["predicted_tokens"]
    assert hinted["priority"] == 0


def test_good_hints_and_the_priority_field_reach_the_scheduler(laps: SglangServer) -> None:
    said = {"laps_sd": {"expected_output_tokens": 50, "priority": 2}}
    fields = generate(laps, prompts(3, False), custom_params=said, max_new_tokens=200, stop=["."])["meta_info"][
        "laps_sd"
    ]
    assert fields["predicted_tokens"] == pytest.approx(50, rel=0.3)
    assert fields["priority"] == 2
    body = {"text": prompts(3, False), "sampling_params": {"max_new_tokens": 2, "custom_params": said}, "priority": 7}
    assert post(laps, "/generate", body)["meta_info"]["laps_sd"]["priority"] == 7


def test_aborted_and_abandoned_requests_leave_nothing_behind(
    laps: SglangServer, wait_idle: Callable[[SglangServer], None]
) -> None:
    def abandon(i: int) -> None:
        body = {
            "text": prompts(i, True), "rid": f"gone-{i}", "stream": i % 2 == 0,
            "sampling_params": {"temperature": 0, "max_new_tokens": 400, "ignore_eos": True},
        }  # fmt: skip
        try:
            httpx.post(laps.url + "/generate", json=body, timeout=1.5, trust_env=False)
        except httpx.TimeoutException:
            post_abort = {"rid": f"gone-{i}"}
            httpx.post(laps.url + "/abort_request", json=post_abort, timeout=60, trust_env=False)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(abandon, range(6)))
    wait_idle(laps)
    assert generate(laps, prompts(1, False))["meta_info"]["completion_tokens"] > 0


def test_a_request_that_is_aborted_in_the_queue_answers_with_our_fields_too(
    laps: SglangServer, wait_idle: Callable[[SglangServer], None]
) -> None:
    def ask(rid: str) -> Any:
        sampling = {"temperature": 0, "max_new_tokens": 200, "ignore_eos": True}
        return post(laps, "/generate", {"text": prompts(9, True), "rid": rid, "sampling_params": sampling})

    with ThreadPoolExecutor(SLOTS + 1) as pool:
        asked = [pool.submit(ask, f"queue-{i}") for i in range(SLOTS + 1)]
        time.sleep(1.0)
        for rid in ("queue-2", "queue-1", "queue-0"):  # one of them waits: there is a slot too few
            abort = {"rid": rid}
            httpx.post(laps.url + "/abort_request", json=abort, timeout=60, trust_env=False).raise_for_status()
        answers = [answer.result()["meta_info"] for answer in asked]
    assert "Abort in waiting queue" in [answer["finish_reason"].get("message") for answer in answers]
    assert [answer["laps_sd"]["predicted_tokens"] for answer in answers] == [200] * len(answers)
    assert all(answer["finish_reason"].keys() <= {"type", "message", "status_code", "err_type"} for answer in answers)
    wait_idle(laps)


def test_our_metrics_appear_beside_sglangs(laps: SglangServer, bundle: Path) -> None:
    def metrics() -> str:
        return httpx.get(laps.url + "/metrics", timeout=60, trust_env=False).text

    generate(laps, prompts(5, False))
    with ThreadPoolExecutor(1) as pool:
        load, text = pool.submit(send_load, laps.url, burst(8)), ""
        while "laps_sd_requests{" not in text and not load.done():
            text = metrics()
            time.sleep(0.1)
        load.result()
    assert "laps_sd_requests{" in text, "levels are shown while somebody waits or runs"
    text = metrics()
    for name in (
        'laps_sd_active{policy="laps-sd"} 1',
        "laps_sd_perceptible_share", "laps_sd_prediction_trust",
        "laps_sd_preemptions_total{", "laps_sd_recomputed_tokens_total", "laps_sd_rank_seconds_bucket",
        "laps_sd_prediction_seconds_count", "laps_sd_accept_length_relative_error_count", "laps_sd_length_log_error",
        "sglang:num_queue_reqs",
    ):  # fmt: skip
        assert name in text, f"{name} is missing from /metrics"
    now: Any = look(laps.url)
    assert now["active"]
    assert now["backlog"]["waiting"]["tokens"] is not None
    (told,) = server_info(laps.url, None)["internal_states"]
    served = Served.told(told["laps_sd"])
    assert served is not None
    assert (served.policy, served.bundle) == ("laps-sd", str(bundle))
    assert f'laps_sd_info{{bundle="{bundle}"' in text
    assert laps.log is not None
    assert f"laps-sd: {served}" in laps.log.read_text(encoding="utf-8")


def test_finished_requests_are_recorded_for_training(laps: SglangServer, trace: Path) -> None:
    answer = generate(laps, prompts(11, True), max_new_tokens=20, ignore_eos=True)
    for _ in range(50):
        records = {r.request_id: r for r in read_records(trace)}
        if answer["meta_info"]["id"] in records:
            break
        time.sleep(0.1)
    record = records[answer["meta_info"]["id"]]
    meta = answer["meta_info"]
    assert record.prompt == prompts(11, True)
    assert (record.output_tokens, record.finish_reason, record.max_new_tokens) == (20, "length", 20)
    assert record.verify_steps == meta["spec_verify_ct"]
    assert list(record.correct_drafts_histogram or ()) == meta["spec_correct_drafts_histogram"]
    assert record.draft == "NGRAM"
    assert record.max_correct_drafts == 7
    assert record.ttft_s is not None
    assert record.e2e_s is not None
    assert 0 < record.ttft_s <= record.e2e_s
    story = record.extra["laps_sd"]
    assert story["predicted_tokens"] == 20, "it ignores its end token"
    assert story["slots"][-1][1] is None, "it held its slot to the end"


def test_another_policy_serves_by_its_name(
    server_factory: Callable[..., SglangServer], small_model: Path, tmp_path_factory: pytest.TempPathFactory,
    fcfs_answers: list[LoadResult],
) -> None:  # fmt: skip
    config = tmp_path_factory.mktemp("las") / "config.yaml"
    config.write_text("policy: {name: las}")
    args = [*COMMON, "--schedule-policy", "laps-sd", "--laps-sd-config", str(config)]  # it needs no bundle
    las = server_factory(args, model=small_model)
    answers = send_load(las.url, burst())
    assert [a.output_ids for a in answers] == [a.output_ids for a in fcfs_answers]
    assert sum(a.meta_info["laps_sd"]["preemptions"] for a in answers) >= 1, "who has had least takes a slot"
    info = httpx.get(las.url + "/server_info", timeout=60, trust_env=False).json()
    assert [state["laps_sd"]["policy"] for state in info["internal_states"]] == ["las"]
    assert 'laps_sd_active{policy="las"} 1' in httpx.get(las.url + "/metrics", timeout=60, trust_env=False).text


PYTHON = Path(sys.executable)


@pytest.mark.parametrize(
    "entry", [[str(PYTHON), "-m", "sglang.launch_server"], [str(PYTHON.with_name("sglang")), "serve"]]
)
def test_a_real_launch_that_cannot_work_ends_with_one_sentence(entry: list[str], small_model: Path) -> None:
    command = [*entry, "--model-path", str(small_model), "--schedule-policy", "laps-sd"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if line.startswith("laps-sd: ")]
    assert len(said) == 1
    assert "needs --laps-sd-bundle" in said[0]
    assert "Traceback" not in done.stderr
