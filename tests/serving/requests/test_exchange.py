"""What travels with a request: our numbers only, and off again before anybody else reads the dict."""

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from laps_sd.serving.flags import WIRE_KEY
from laps_sd.serving.requests.exchange import (
    Attachment,
    attach,
    attach_to_abort,
    detach,
    detach_from_abort,
    read_wire,
)


def test_what_is_loaded_is_taken_off(prediction: Any) -> None:
    params = SimpleNamespace(custom_params={"thinking_budget": 9})
    attach(params, Attachment(prediction(80), 3, hinted=True))
    carried = detach(params)
    assert (carried.priority, carried.hinted) == (3, True)
    assert carried.prediction is not None
    assert carried.prediction.length.mean() == pytest.approx(prediction(80).length.mean(), rel=1e-3)
    assert params.custom_params == {"thinking_budget": 9}, "custom logit processors read this dict"


def test_nothing_is_left_where_the_client_sent_nothing(prediction: Any) -> None:
    params = SimpleNamespace(custom_params=None)
    attach(params, Attachment(prediction(80)))
    detach(params)
    assert params.custom_params is None


def test_the_clients_own_dict_is_never_changed(prediction: Any) -> None:
    own = {"a": 1}
    params = SimpleNamespace(custom_params=own)
    attach(params, Attachment(prediction(80)))
    assert own == {"a": 1}, "requests of one batch share it"


def test_a_client_cannot_bring_a_prediction_of_its_own(prediction: Any) -> None:
    forged = {WIRE_KEY: {**prediction(1).to_wire(), "priority": 99}}
    params = SimpleNamespace(custom_params=forged)
    attach(params, Attachment())
    assert detach(params) == Attachment()


@pytest.mark.parametrize("own", ["", "text", 0, 7, False, [], [1], [["a", 1]]])
def test_what_is_no_dict_is_left_as_it_is(prediction: Any, own: Any) -> None:
    params = SimpleNamespace(custom_params=own)
    assert attach(params, Attachment(prediction(80))) is False
    assert params.custom_params is own
    assert detach(params) == Attachment()


@pytest.mark.parametrize(
    "wire",
    [
        None,
        5,
        [],
        {"edges": "x"},
        {"edges": [0, 1], "survival": [2, 1]},
        {"priority": "high"},
        {"priority": 1.5},
        {"hinted": 1},
    ],
)
def test_damaged_numbers_count_as_none(wire: object) -> None:
    assert read_wire(wire) == Attachment()


def test_lists_stay_small_enough_for_custom_params(prediction: Any) -> None:
    params = SimpleNamespace(custom_params=None)
    attach(params, Attachment(prediction(300)))
    wire = params.custom_params[WIRE_KEY]
    assert all(isinstance(v, (int, float, list)) for v in wire.values())
    assert max(len(v) for v in wire.values() if isinstance(v, list)) <= 40


@pytest.mark.parametrize("reason", [None, {"type": "abort", "status_code": 503, "message": "The queue is full."}])
def test_fields_travel_with_an_abort_through_sglangs_own_message(sglang: ModuleType, reason: Any) -> None:
    """SGLang checks the types of what it sends: numbers with a fraction and nested values would not pass."""
    import msgspec
    from sglang.srt.managers.io_struct import AbortReq

    fields: Any = {"predicted_tokens": 1.5, "predicted_accept_length": None, "steps": 3}
    abort: Any = AbortReq(rid="r", finished_reason=reason)
    attach_to_abort(abort, fields)
    received: Any = msgspec.msgpack.decode(msgspec.msgpack.encode(abort), type=AbortReq)
    assert detach_from_abort(received) == fields
    assert received.finished_reason == reason or reason is None
    assert received.finished_reason["type"] == "abort"
    assert detach_from_abort(received) is None
    assert detach_from_abort(AbortReq(rid="r")) is None  # type: ignore[arg-type]
