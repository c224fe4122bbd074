"""Whatever a file of predictions or of a cost model holds: it is used, or refused in one sentence."""

import json
import os

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from laps_sd.data import RequestRecord
from laps_sd.errors import InputError
from laps_sd.scheduler import Prediction
from laps_sd.simulation.replay import PredictionsOption, find_predictions

search = settings(max_examples=int(os.environ.get("LAPS_SD_FUZZ", "60")))

RECORDS = [
    RequestRecord(request_id=name, prompt_tokens=3, output_tokens=9, finish_reason="stop") for name in ("a", "b")
]
GOOD = {"edges": [0.0, 8.0, 64.0], "survival": [1.0, 0.5, 0.0], "accept_length": 2.0, "accept_strength": 8.0}
NUMBERS = st.integers(-(2**70), 2**70) | st.floats() | st.sampled_from([0, 1, 1e308, 5e-324, 10**400])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
CHANGES = st.dictionaries(st.sampled_from([*GOOD, "request_id", "prediction"]), VALUES, max_size=2)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("any") / "predictions.jsonl"


def settled(path, content):
    path.write_bytes(content)
    try:
        found = find_predictions(PredictionsOption("file", file=path), RECORDS, bundle=None, seed=0).predictions
    except InputError as error:
        found, sentence = [], str(error)
    else:
        sentence = str(path)
    assert str(path) in sentence
    assert "\n" not in sentence
    assert all(isinstance(prediction, Prediction) and prediction.length.mean() >= 1 for prediction in found)


@search
@given(first=CHANGES, second=CHANGES, nested=st.booleans())
def test_any_values(path, first, second, nested):
    rows = [
        {"request_id": name, "prediction": {**GOOD, **change}} if nested else {"request_id": name, **GOOD, **change}
        for name, change in (("a", first), ("b", second))
    ]
    settled(path, "\n".join(json.dumps(row) for row in rows).encode())


@search
@given(
    st.binary(max_size=200) | st.lists(VALUES, max_size=3).map(lambda rows: "\n".join(map(json.dumps, rows)).encode())
)
@example(b"[" * 100_000)
@example(b'{"request_id": ' + b"9" * 5000 + b"}")
@example(b"\x1f\x8b" + bytes(40))
def test_any_bytes(path, content):
    settled(path, content)
