"""The tokenizer's side: one prediction per request, and whatever goes wrong the request goes on."""

import copy
import dataclasses
import gc
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from laps_sd.data import PromptRequest, read_records
from laps_sd.serving.config import ServingConfig
from laps_sd.serving.flags import META_KEY, WIRE_KEY
from laps_sd.serving.launch import Launch
from laps_sd.serving.requests.exchange import detach
from laps_sd.serving.requests.tokenizer_side import ServerFacts, TokenizerSide


class Bundle:
    def __init__(self, prediction: Any = None, error: Exception | None = None) -> None:
        self.asked: list[PromptRequest] = []
        self.server: list[dict[str, Any]] = []
        self._prediction, self._error = prediction, error

    def predict_one(self, request: PromptRequest, **server: Any) -> Any:
        self.asked.append(request)
        self.server.append(server)
        if self._error is not None:
            raise copy.copy(self._error)
        return self._prediction


class Counts:
    """Stands in for the metrics: remembers what was counted."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *values: self.seen.append((name, *values))


class Tokenizer:
    """Decodes ids into words, and has no chat template."""

    def decode(self, ids: list[int], **_: Any) -> str:
        return "<|im_start|>user\n" + " ".join(f"w{i}" for i in ids) + "<|im_end|>\n<|im_start|>assistant\n"

    def apply_chat_template(self, *_: Any, **__: Any) -> str:
        raise ValueError("no template")


def make(bundle: Any, counts: Counts | None = None, **config: Any) -> TokenizerSide:
    launch = Launch(None, ServingConfig.model_validate(config))
    facts = ServerFacts("model", "NGRAM", 7)
    return TokenizerSide(bundle, launch, lambda: facts, lambda: counts)  # type: ignore[arg-type, return-value]


def tokenized(priority: int | None = None, reasons: bool = False, **params: Any) -> Any:
    free = dict.fromkeys(("regex", "json_schema", "ebnf", "structural_tag"))
    values = {"custom_params": None, "max_new_tokens": 64, "temperature": 1.0, "top_k": 1, "ignore_eos": False}
    params = SimpleNamespace(**{**values, **free, **params})  # type: ignore[assignment]
    return SimpleNamespace(sampling_params=params, priority=priority, require_reasoning=reasons)


def arrive(side: TokenizerSide, text: str | None = "Hello", ids: list[int] | None = None, **params: Any) -> Any:
    request, obj = tokenized(**params), SimpleNamespace()
    side.on_tokenized(request, Tokenizer(), obj, text, ids if ids is not None else [1, 2, 3])
    return request, obj


def test_a_request_leaves_with_its_prediction(prediction: Any) -> None:
    bundle = Bundle(prediction(40))
    request, obj = arrive(make(bundle))
    carried = detach(request.sampling_params)
    assert carried.prediction is not None
    assert bundle.asked == [PromptRequest("Hello", prompt_tokens=3, max_new_tokens=64, temperature=0.0, model="model")]
    assert bundle.server == [{"draft": "NGRAM", "max_correct_drafts": 7}]
    assert obj.laps_sd.prediction is bundle._prediction


def test_text_and_templated_ids_give_the_same_features(prediction: Any) -> None:
    bundle = Bundle(prediction(40))
    side = make(bundle)
    arrive(side, text="w4 w5", ids=[4, 5])
    arrive(side, text=None, ids=[4, 5])
    assert bundle.asked[0] == bundle.asked[1]


@pytest.mark.parametrize(
    ("bundle", "text", "reason"),
    [(None, "Hello", "no bundle"), (Bundle(error=KeyError("x")), "Hello", "failed"), (Bundle(), None, "no text")],
)
def test_without_a_prediction_the_request_goes_on_and_is_counted(bundle: Any, text: Any, reason: str) -> None:
    counts = Counts()
    request = tokenized()
    make(bundle, counts).on_tokenized(request, None, SimpleNamespace(), text, None)
    assert detach(request.sampling_params).prediction is None
    assert ("unpredicted", reason) in counts.seen


def test_a_predictor_that_fails_is_logged_once_with_its_place_and_then_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bundle = Bundle(error=KeyError("no such feature"))
    side = make(bundle)
    for _ in range(2000):
        arrive(side)
    first, *later = caplog.records
    assert first.exc_info is not None
    assert "in predict_one" in caplog.text
    assert "no such feature" in first.message
    assert [r.message.split("), ")[1] for r in later] == ["1000 times by now", "2000 times by now"]
    bundle._error = ZeroDivisionError("another kind")
    arrive(side)
    assert "another kind" in caplog.records[-1].message


def test_a_tokenizer_that_fails_fails_no_request(prediction: Any) -> None:
    class Broken:
        def decode(self, *_: Any, **__: Any) -> str:
            raise RuntimeError("Already borrowed")

    counts, request = Counts(), tokenized()
    make(Bundle(prediction(5)), counts).on_tokenized(request, Broken(), SimpleNamespace(), None, [1, 2])
    assert detach(request.sampling_params).prediction is None
    assert ("unpredicted", "failed") in counts.seen


def test_hints_travel_and_bad_ones_are_counted(prediction: Any) -> None:
    counts = Counts()
    side = make(Bundle(prediction(400)), counts, hints={"priority": True})
    request, _ = arrive(side, custom_params={"laps_sd": {"expected_output_tokens": 10, "priority": 3}})
    carried = detach(request.sampling_params)
    assert carried.priority == 3
    assert carried.prediction is not None
    assert carried.prediction.length.mean() < 20
    assert carried.hinted
    arrive(side, custom_params={"laps_sd": {"expected_output_tokens": -5}})
    assert ("rejected_hints", ("out of bounds",)) in counts.seen


ALLOWED = {"priority": True}


@pytest.mark.parametrize(
    ("hints", "said", "left"),
    [({}, 7, None), (ALLOWED, 7, 7), (ALLOWED, None, None), (ALLOWED, 2**62, 100), (ALLOWED, -(2**62), -100),
     ({**ALLOWED, "max_priority": 0}, 5, 0), ({**ALLOWED, "request_priority": False}, 5, None),
     ({**ALLOWED, "enabled": False}, 5, None)],
)  # fmt: skip
def test_the_priority_field_is_bounded_or_ignored_as_configured(hints: Any, said: int | None, left: int | None) -> None:
    side = make(None, hints=hints)
    ordinary, probe = tokenized(priority=said), tokenized(priority=said)
    side.on_tokenized(ordinary, Tokenizer(), SimpleNamespace(), "Hello", [1])
    side.pass_by(probe)
    assert (ordinary.priority, probe.priority) == (left, left)


def test_a_forged_prediction_is_overwritten(prediction: Any) -> None:
    forged = {WIRE_KEY: prediction(1).to_wire()}
    request, _ = arrive(make(Bundle(prediction(400))), custom_params=forged)
    carried = detach(request.sampling_params)
    assert carried.prediction is not None
    assert carried.prediction.length.mean() > 300


@pytest.mark.parametrize("own", ["text", ["laps_sd"], 7])
def test_parameters_that_are_no_dict_fail_no_request(prediction: Any, own: Any) -> None:
    counts, bundle = Counts(), Bundle(prediction(40))
    request, obj = arrive(make(bundle, counts), custom_params=own)
    assert request.sampling_params.custom_params is own
    assert counts.seen == [("unpredicted", "custom_params")]
    assert bundle.asked == []
    assert obj.laps_sd.request.prompt == "Hello", "it is recorded all the same"


def test_a_forged_prediction_is_gone_even_when_everything_fails(prediction: Any) -> None:
    side = TokenizerSide(None, Launch(None, ServingConfig()), lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    request, _ = arrive(side, custom_params={WIRE_KEY: prediction(1).to_wire(), "a": 1})
    assert detach(request.sampling_params).prediction is None
    assert request.sampling_params.custom_params == {"a": 1}


FIELDS: dict[str, Any] = {
    "predicted_tokens": 40.0, "predicted_accept_length": 2.0, "accept_length": 2.5, "steps": 16, "level": 3,
    "preemptions": 1, "recomputed_tokens": 4, "priority": 0,
}  # fmt: skip


def finish(side: TokenizerSide, obj: Any, reason: str = "stop", **fields: Any) -> dict[str, Any]:
    meta = {"id": "r1", "prompt_tokens": 3, "completion_tokens": 41}
    side.on_finished(meta, obj, {**FIELDS, **fields}, {"type": reason})
    return meta


def test_the_answer_carries_the_fields_and_nothing_private(prediction: Any) -> None:
    side = make(Bundle(prediction(40)))
    _, obj = arrive(side)
    assert finish(side, obj, measured={"queue_s": 0.1})[META_KEY] == FIELDS


def test_errors_are_counted_where_they_say_something(prediction: Any) -> None:
    counts = Counts()
    side = make(Bundle(prediction(40)), counts)
    _, obj = arrive(side)
    finish(side, obj)
    median = prediction(40).length.quantile(0.5)
    assert ("length_error", median, 41) in counts.seen, "the median, as `laps-sd evaluate` takes it"
    assert ("accept_error", 2.0, 2.5) in counts.seen
    counts.seen.clear()
    finish(side, obj, reason="length", steps=2)
    assert counts.seen == [], "a cut answer has no length, a short one no accept length"


def test_a_clients_own_length_is_no_error_of_ours(prediction: Any) -> None:
    counts = Counts()
    side = make(Bundle(prediction(40)), counts)
    _, obj = arrive(side, custom_params={"laps_sd": {"expected_output_tokens": 9000}})
    finish(side, obj)
    assert [name for name, *_ in counts.seen] == ["predicted", "accept_error"]


def test_a_finished_request_is_recorded(prediction: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    side = make(Bundle(prediction(40)), record={"path": str(path), "prompts": "text"})
    _, obj = arrive(side, text="Name a river")
    finish(side, obj, measured={"correct_drafts_histogram": [0, 2], "accept_lengths": [2, 2], "draft_lengths": [7, 7]})
    side.close()
    (record,) = read_records(path)
    assert (record.prompt, record.model, record.draft, record.temperature) == ("Name a river", "model", "NGRAM", 0.0)
    assert record.accept_length == 2.0


TOOLS = '<|im_start|>system\n{"type": "function"}<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n'


@pytest.mark.parametrize(
    ("text", "params", "seen"),
    [
        ("Hi", {"json_schema": '{"type": "object"}'}, {"constraint": 'json_schema:{"type":"object"}'}),
        ("Hi", {"regex": "a|b"}, {"constraint": "regex:a|b"}),
        ("Hi", {"ebnf": "root"}, {"constraint": "ebnf:root"}),
        ("Hi", {"structural_tag": '{"a": 1}'}, {"constraint": 'structural_tag:{"a":1}'}),
        ("Hi", {"reasons": True}, {"thinking": True}),
        ("Hi", {"ignore_eos": True}, {"ignore_eos": True}),
        (TOOLS, {}, {"tools": 1}),
        (TOOLS + "<think>\n\n</think>\n\n", {"reasons": True}, {"tools": 1, "thinking": False}),
        ("Hi", {}, {}),
    ],
)
def test_what_a_predictor_saw_at_arrival_is_what_training_reads_from_the_record(
    prediction: Any, tmp_path: Path, text: str, params: dict[str, Any], seen: dict[str, Any]
) -> None:
    path, bundle = tmp_path / "trace.jsonl", Bundle(prediction(40))
    side = make(bundle, record={"path": str(path), "prompts": "text"})
    finish(side, arrive(side, text=text, **params)[1])
    side.close()
    (record,) = read_records(path)
    assert {name: getattr(record, name) for name in seen} == seen
    (asked,) = bundle.asked
    trained = PromptRequest.from_record(record)
    assert dataclasses.replace(trained, prompt_tokens=asked.prompt_tokens) == asked


def test_without_the_prompt_only_the_kind_of_a_constraint_is_recorded(prediction: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    side = make(Bundle(prediction(40)), record={"path": str(path)})
    finish(side, arrive(side, regex="secret")[1])
    side.close()
    assert read_records(path)[0].constraint == "regex:"


def test_a_length_that_was_asked_for_is_no_error_of_the_prediction(prediction: Any) -> None:
    counts = Counts()
    side = make(Bundle(prediction(40)), counts)
    finish(side, arrive(side, ignore_eos=True)[1])
    assert not any(name == "length_error" for name, *_ in counts.seen)
    finish(side, arrive(side)[1])
    assert any(name == "length_error" for name, *_ in counts.seen)


def test_what_had_no_token_to_produce_is_not_recorded(prediction: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    side = make(Bundle(prediction(40)), record={"path": str(path)})
    _, obj = arrive(side)
    finish(side, copy.copy(obj), "length", measured={"max_new_tokens": 0})  # SGLang warms the prefix of n > 1 samples
    finish(side, obj, measured={"max_new_tokens": 64})
    finish(side, arrive(side, max_new_tokens=0)[1], "length")
    side.close()
    assert [record.finish_reason for record in read_records(path)] == ["stop"]


def test_what_sglang_refused_is_not_recorded_and_what_was_aborted_is(prediction: Any, tmp_path: Path) -> None:
    """A refusal that the scheduler finds reaches us with a prompt of one token, whatever the prompt was."""
    path = tmp_path / "trace.jsonl"
    side = make(Bundle(prediction(40)), record={"path": str(path)})
    for i, status in enumerate((400, None, 500)):
        meta = {"id": f"r{i}", "prompt_tokens": 1, "completion_tokens": 1}
        side.on_finished(meta, arrive(side)[1], {**FIELDS}, {"type": "abort", "message": "m", "status_code": status})
    side.close()
    assert [record.request_id for record in read_records(path)] == ["r1", "r2"]


def test_a_record_that_cannot_be_made_fails_no_answer(prediction: Any, tmp_path: Path) -> None:
    counts = Counts()
    side = make(Bundle(prediction(40)), counts, record={"path": str(tmp_path / "trace.jsonl")})
    _, obj = arrive(side, max_new_tokens=8)  # 41 tokens under a cap of 8 contradict each other
    assert finish(side, obj)[META_KEY] == FIELDS
    side.close()
    assert counts.seen[-1] == ("unrecorded", 1)


def test_an_error_in_counting_does_not_cost_the_record(prediction: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    side = make(Bundle(prediction(40)), Counts(), record={"path": str(path)})
    _, obj = arrive(side)
    finish(side, obj, predicted_accept_length="?")
    side.close()
    assert len(read_records(path)) == 1


@pytest.mark.parametrize("end", ["answered", "aborted, and nobody tells us", "failed"])
def test_what_is_known_of_a_request_goes_with_sglangs_own_object(prediction: Any, tmp_path: Path, end: str) -> None:
    class Obj:
        """As SGLang's ``GenerateReqInput``, which it drops when the request ends, however that is."""

        laps_sd: Any

    side = make(Bundle(prediction(40)), record={"path": str(tmp_path / "trace.jsonl")})
    obj = Obj()
    bad = {"max_new_tokens": "?"} if end == "failed" else {}
    side.on_tokenized(tokenized(**bad), Tokenizer(), obj, "Hello", [1, 2, 3])
    if end == "answered":
        finish(side, obj)
    side.close()  # the record is written
    there, ours = weakref.ref(obj), obj.laps_sd
    del obj
    gc.collect()
    assert there() is None
    assert gc.get_referrers(ours) == [], "this function's own variable aside, nobody holds what was known of it"
