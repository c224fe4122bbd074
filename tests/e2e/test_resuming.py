"""The table "can this request resume exactly?" on real servers: preempted answers against undisturbed ones."""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dill
import httpx
import pytest
import yaml

from laps_sd.serving.process.server import SglangServer
from laps_sd.serving.process.speculation import speculation_args
from laps_sd.serving.requests.resumption import FEATURES, Feature

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]

#: The whole demo model writes sense; fewer layers repeat themselves, whatever happens to them.
PROMPT = "Once upon a time, there was a"
TOKENS = 20
#: Tokens of the answer after which somebody more important arrives, who needs the one slot.
INTERRUPTED_AT = (4, 10)
PLAIN = {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True}
INTEGERS = {"type": "array", "items": {"type": "integer"}, "minItems": 12, "maxItems": 12}


class EveryThirdTime:
    """A logit processor with a state: what it forbids depends on how often it was called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, logits: Any, _params: object = None) -> Any:
        self.calls += 1
        logits[:, 28 if self.calls % 3 else 260] = -1e9
        return logits


def serialized(processor: type) -> str:
    """The processor as SGLang's clients send it: by value, because the server cannot import this file."""
    module, processor.__module__ = processor.__module__, "__main__"
    try:
        return json.dumps({"callable": dill.dumps(processor, byref=False, recurse=True).hex()})
    finally:
        processor.__module__ = module


def body(sampling: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"sampling_params": PLAIN | (sampling or {}), **more}


#: Requests of every feature that a CPU can run, by the feature's key.
REQUESTS: dict[str, list[dict[str, Any]]] = {
    "plain": [
        body(),
        body({"ignore_eos": False, "stop": ["zzz", "bustling"], "no_stop_trim": True, "stop_token_ids": [3]}),
        body({"logit_bias": {"260": -5, "28": 3}}),
    ],
    "logprobs": [
        body(return_logprob=True),
        body(return_logprob=True, logprob_start_len=0, top_logprobs_num=3),
        body(return_logprob=True, token_ids_logprob=[5, 6, 7]),
    ],
    "grammar": [
        body({"regex": "([a-z]{2,5} ){30}"}),
        body({"json_schema": json.dumps({"type": "object", "properties": {"a": INTEGERS}, "required": ["a"]})}),
        body({"ebnf": 'root ::= ("yes " | "no ")+'}),
    ],
    "sampling mask": [body({"top_k": 1}, return_sampling_mask=True)],
    "penalties": [
        body({"frequency_penalty": 0.7}),
        body({"presence_penalty": 1.5}),
        body({"repetition_penalty": 1.4}),
        body({"frequency_penalty": 0.3, "presence_penalty": 0.3, "repetition_penalty": 1.2}),
        body({"ignore_eos": False, "min_new_tokens": 14, "stop_token_ids": list(range(0, 49152, 2))}),
    ],
    "penalties with drafts": [body({"frequency_penalty": 0.7}), body({"repetition_penalty": 1.4})],
    "hidden states": [body(return_hidden_states=True)],
    "logit processor": [body(custom_logit_processor=serialized(EveryThirdTime))],
}
RUN = {feature.key: feature for feature in FEATURES if feature.seen == "run"}
ONE_SLOT = ["--max-running-requests", "1"]
#: SGLang then retracts somebody every third step.
RETRACTING = {"SGLANG_TEST_RETRACT": "1"}
ALLOWED = ["--enable-return-hidden-states", "--enable-custom-logit-processor"]


@pytest.fixture(scope="session")
def start(server_factory: Callable[..., SglangServer], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """``start(args, env)``: a server with laps-sd, on which a preemption costs nothing."""
    config = tmp_path_factory.mktemp("resuming") / "config.yaml"
    config.write_text(
        yaml.safe_dump({"unpredicted": True, "policy": {"recompute_weight": 0}, "hints": {"priority": True}})
    )
    laps = ["--schedule-policy", "laps-sd", "--laps-sd-config", str(config)]

    def make(args: Sequence[str], env: dict[str, str] | None = None, *, ours: bool = True) -> SglangServer:
        return server_factory([*ALLOWED, *args, *(laps if ours else [])], env=env)

    return make


def events(server: SglangServer, request: dict[str, Any], text: str = PROMPT) -> Iterator[dict[str, Any]]:
    """The stream of one answer."""
    asked = {"text": text, "stream": True, **request}
    with httpx.stream("POST", server.url + "/generate", json=asked, timeout=300, trust_env=False) as stream:
        for line in stream.iter_lines():
            if line.startswith("data:") and "[DONE]" not in line:
                event = json.loads(line[5:])
                assert "error" not in event, event
                yield event


def answered(server: SglangServer, request: dict[str, Any], others: Sequence[tuple[int, Any]] = ()) -> dict[str, Any]:
    """The last event of one answer, which holds all of it; ``others`` are asked after so many tokens of it."""
    last: dict[str, Any] = {}
    due = list(others)
    with ThreadPoolExecutor() as pool, httpx.Client(timeout=300, trust_env=False) as client:
        client.get(server.url + "/health")  # connected, so that the others come at once
        asked = []
        for last in events(server, request):
            while due and last["meta_info"]["completion_tokens"] >= due[0][0]:
                asked.append(pool.submit(client.post, server.url + "/generate", json=due.pop(0)[1]))
        for one in asked:
            one.result().raise_for_status()
    return last


def interrupted_answer(server: SglangServer, request: dict[str, Any]) -> dict[str, Any]:
    """An answer that is interrupted by short requests that go before all."""
    sampling = {**PLAIN, "max_new_tokens": 2, "custom_params": {"laps_sd": {"priority": 50}}}
    return answered(server, request, [(at, {"text": "Now!", "sampling_params": sampling}) for at in INTERRUPTED_AT])


def disturbed_answer(server: SglangServer, request: dict[str, Any], *, preemptible: bool) -> dict[str, Any]:
    """An answer that was interrupted; where it may be preempted, tried until it was."""
    for _ in range(4):
        answer = interrupted_answer(server, request)
        if not preemptible or answer["meta_info"]["laps_sd"]["preemptions"]:
            break
    return answer


#: Fields of ``meta_info`` that belong to the answer.
ANSWER = (
    "finish_reason", "completion_tokens", "prompt_tokens", "input_token_logprobs", "output_token_logprobs",
    "input_top_logprobs", "output_top_logprobs", "input_token_ids_logprobs", "output_token_ids_logprobs",
    "sampling_mask", "output_sampling_mask", "output_token_sampling_mask", "output_token_sampling_logprobs",
)  # fmt: skip


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Every number and word of a nested value, by its place."""
    if isinstance(value, dict):
        return {key: leaf for name, inner in value.items() for key, leaf in flat(inner, f"{path}.{name}").items()}
    if isinstance(value, list):
        return {key: leaf for i, inner in enumerate(value) for key, leaf in flat(inner, f"{path}[{i}]").items()}
    return {path: value}


def content(answer: dict[str, Any]) -> dict[str, Any]:
    """What the client gets, flat: numbers with a fraction can be compared up to rounding."""
    meta = answer["meta_info"]
    wanted = {name: meta[name] for name in ANSWER if name in meta}
    return flat({"text": answer["text"], "ids": answer["output_ids"], **wanted})


def same(first: dict[str, Any], second: dict[str, Any]) -> None:
    one, other = content(first), content(second)
    assert one.keys() == other.keys()
    for place, value in one.items():
        expected = pytest.approx(other[place], abs=1e-3) if isinstance(value, float) else other[place]
        assert value == expected, place


def compare(server: SglangServer, feature: Feature, request: dict[str, Any]) -> None:
    """An interrupted answer equals an undisturbed one, and only who can resume exactly was interrupted."""
    undisturbed = answered(server, request)
    disturbed = disturbed_answer(server, request, preemptible=feature.verdict != "no")
    assert undisturbed["meta_info"]["laps_sd"]["preemptions"] == 0
    preemptions = disturbed["meta_info"]["laps_sd"]["preemptions"]
    assert preemptions == 0 if feature.verdict == "no" else preemptions >= 1
    same(disturbed, undisturbed)
    if "return_hidden_states" in request:
        rows = disturbed["meta_info"]["hidden_states"]
        assert [len(row) for row in rows[1:]] == [len(rows[0][0])] * (TOKENS - 1), "a row for every later token"


def test_every_feature_that_the_table_calls_compared_is_compared() -> None:
    assert REQUESTS.keys() == RUN.keys()


def cases(*, every: bool) -> list[Any]:
    """The first request of each feature without drafts, and the ``slow`` rest of them."""
    found = []
    for key, feature in RUN.items():
        for i, request in enumerate(REQUESTS[key] if feature.key != "penalties with drafts" else []):
            slow = [pytest.mark.slow] if every or i else []
            found.append(pytest.param(feature, request, marks=slow, id=f"{key.replace(' ', '-')}-{i}"))
    return found


@pytest.mark.parametrize(("feature", "request_"), cases(every=False))
def test_without_drafts(start: Any, feature: Feature, request_: dict[str, Any]) -> None:
    compare(start([*ONE_SLOT, "--disable-overlap-schedule"]), feature, request_)


@pytest.mark.parametrize(("feature", "request_"), cases(every=True))
def test_with_overlap_scheduling(start: Any, feature: Feature, request_: dict[str, Any]) -> None:
    compare(start(ONE_SLOT), feature, request_)


@pytest.mark.slow
@pytest.mark.parametrize("request_", REQUESTS["penalties with drafts"])
def test_with_drafts_nobody_with_penalties_is_preempted(start: Any, request_: dict[str, Any]) -> None:
    """The answer itself hangs on what n-gram drafts learned meanwhile, with or without us."""
    server = start([*ONE_SLOT, *speculation_args("ngram")])
    feature = RUN["penalties with drafts"]
    disturbed = disturbed_answer(server, request_, preemptible=feature.verdict != "no")
    assert disturbed["meta_info"]["laps_sd"]["preemptions"] == 0


def retracted_answer(server: SglangServer, request: dict[str, Any]) -> dict[str, Any]:
    """An answer beside others, on a server that retracts somebody every few steps: the longest, which is this one."""
    sampling = {**PLAIN, "max_new_tokens": 6}
    return answered(server, request, [(2, {"text": f"Other {i}", "sampling_params": sampling}) for i in range(3)])


def of_one_kind(request: dict[str, Any]) -> bool:
    """Whether all processes answer alike: SGLang divides by some penalties and subtracts others, in any order."""
    asked = request["sampling_params"]
    return "repetition_penalty" not in asked or not {"frequency_penalty", "presence_penalty"} & asked.keys()


@pytest.mark.slow
@pytest.mark.parametrize("request_", [*filter(of_one_kind, REQUESTS["penalties"])])
def test_penalties_outlive_sglangs_own_retraction_too(start: Any, request_: dict[str, Any]) -> None:
    alone = answered(start([*ONE_SLOT, "--disable-overlap-schedule"]), request_)
    server = start(["--max-running-requests", "4", "--disable-overlap-schedule"], RETRACTING)
    for _ in range(4):
        answer = retracted_answer(server, request_)
        if answer["meta_info"]["num_retractions"]:
            break
    assert answer["meta_info"]["num_retractions"] >= 1
    same(answer, alone)


@pytest.mark.slow
def test_without_us_a_retraction_changes_penalized_answers(start: Any) -> None:
    """What docs/serving.md says of SGLang alone; when this fails SGLang has mended it."""
    server = start(["--max-running-requests", "4", "--disable-overlap-schedule"], RETRACTING, ours=False)
    request = body({"repetition_penalty": 1.4})
    alone = answered(server, request)
    with ThreadPoolExecutor() as pool:
        late = None
        for event in events(server, body({"max_new_tokens": 80}), "Far ahead"):  # SGLang keeps who has produced more
            if late is None and event["meta_info"]["completion_tokens"] >= 8:
                late = pool.submit(answered, server, request)
        assert late is not None
        answer = late.result()
    assert answer["meta_info"]["num_retractions"] >= 1
    assert content(answer) != content(alone)


@pytest.mark.slow
def test_without_us_overlap_scheduling_lets_others_change_penalized_answers(start: Any) -> None:
    """Likewise: any prefill in between makes SGLang count one token twice, and the one before it never."""
    server = start(["--max-running-requests", "2"], ours=False)
    request = body({"frequency_penalty": 0.7})
    alone = answered(server, request)
    assert any(content(interrupted_answer(server, request)) != content(alone) for _ in range(4))
