"""A bundle knows the requests it was trained on from others."""

from laps_sd.data import RequestRecord
from laps_sd.predictors.fingerprint import LARGE_SHIFT, fingerprint, shift


def test_requests_like_those_of_training_raise_no_alarm(draw):
    known = fingerprint(draw(300, seed=1))
    found = shift(known, draw(150, seed=2))
    assert not found["shifted"]
    assert found["new_models"] == []


def test_other_prompts_raise_it_and_name_what_differs(draw):
    known = fingerprint(draw(300, seed=1))
    code = "def f(x):\n    return {x: [x]};\n" * 40
    others = [
        RequestRecord(
            request_id=str(i),
            prompt=code + str(i),
            prompt_tokens=300,
            output_tokens=500,
            finish_reason="stop",
            model="x",
        )
        for i in range(100)
    ]
    found = shift(known, others)
    assert found["shifted"]
    assert found["score"] > LARGE_SHIFT
    assert "share_code_marks" in list(found["features"])[:6]
    assert found["new_models"] == ["x"]


def test_a_few_requests_alone_raise_no_alarm(draw):
    assert not shift(fingerprint(draw(300, seed=1)), draw(10, seed=3))["shifted"]


def test_it_is_plain_json(draw):
    import json

    known = fingerprint(draw(40, cap=50))
    assert shift(json.loads(json.dumps(known, allow_nan=False)), draw(40))["score"] >= 0
