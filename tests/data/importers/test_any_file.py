"""Whatever a file holds: records or one sentence, never a crash, soon, and in little memory.

Hypothesis bends a good file of each format: bytes are changed, cut and repeated, values of its JSON are replaced.
"""

import json
import os
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laps_sd.data import RequestRecord, iter_records
from laps_sd.data.importers import ImportOptions, importer_class
from laps_sd.data.records.bad_rows import Tolerance
from laps_sd.errors import InputError
from laps_sd.extensions import IMPORTERS

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
SIGNS = [b"{", b"]", b'"', b"\n", b"\\ud800", b"1e999", b"-", b"9" * 30]
#: benchmarks/fuzz.py searches longer, other examples every time.
FUZZ = int(os.environ.get("LAPS_SD_FUZZ", "20"))
bent = settings(
    max_examples=FUZZ,
    derandomize=FUZZ == 20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


class WordTokenizer:
    """A token a word."""

    def encode(self, text, *, add_special_tokens=True):
        return text.split()

    def decode(self, token_ids, *, skip_special_tokens=False):
        return " ".join(map(str, token_ids))

    def apply_chat_template(self, conversation, *, tokenize=True, add_generation_prompt=False):
        raise ValueError("no template")


@pytest.fixture(params=IMPORTERS.names())
def name(request):
    return request.param


@pytest.fixture
def path(tmp_path):
    return tmp_path / "bent"


def refusal(records):
    """Read to the end; return the sentence with which that ended, None if it went well."""
    try:
        assert all(isinstance(record, RequestRecord) for record in records)
    except InputError as error:
        return str(error)
    return None


def read(name, path):
    """Read with everything that options can bring in; a refusal is one sentence that names the file."""
    for options in (ImportOptions(), ImportOptions(tokenizer=WordTokenizer(), max_new_tokens=5, natural_ends=True)):
        for allowed in (0, 100):
            importer = importer_class(name)(options)
            told = refusal(importer.records([path], Tolerance(allowed)))
            assert told is None or (str(path) in told and "\n" not in told)
            assert all("\n" not in remark for remark in importer.remarks())


def replaced(value, data):
    """Return a JSON value in which one part, at any depth, is something else."""
    if isinstance(value, dict) and value and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(sorted(value)))
        if data.draw(st.booleans()):
            return {**value, key: replaced(value[key], data)}
        return {k: v for k, v in value.items() if k != key}
    if isinstance(value, list) and value and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(value) - 1))
        return [*value[:at], replaced(value[at], data), *value[at + 1 :]]
    return data.draw(VALUES)


@bent
@given(data=st.data())
def test_changed_bytes_do_no_harm(name, path, samples, data):
    text = bytearray(samples[name][:4000])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        end = data.draw(st.integers(at, min(len(text), at + 30)))
        text[at:end] = data.draw(st.binary(max_size=6) | st.sampled_from(SIGNS))
        text = text or bytearray(b" ")
    path.write_bytes(bytes(text))
    read(name, path)


@bent
@given(data=st.data())
def test_changed_values_do_no_harm(name, path, samples, data):
    lines = [line for line in samples[name].splitlines() if line.startswith(b"{")][:3]
    rows = [replaced(json.loads(line), data) for line in lines] or data.draw(st.lists(VALUES, min_size=1, max_size=3))
    indent = data.draw(st.sampled_from([None, None, 1]))
    path.write_bytes(b"".join(json.dumps(row, indent=indent).encode() + b"\n" for row in rows))
    read(name, path)


@bent
@given(data=st.data())
def test_the_record_reader_takes_any_bytes(path, samples, data):
    text = data.draw(st.binary(max_size=300) | st.sampled_from(sorted(samples.values())).map(lambda b: b[:500]))
    head = data.draw(st.sampled_from([b"", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1", b"[", b"\xef\xbb\xbf", b"{\n"]))
    path.write_bytes(head + text)
    told = refusal(iter_records(path, skip_bad=1000))
    assert told is None or str(path) in told


#: Rows that once crashed an importer, or try to.
HARD = [
    ("chat", {"id": 2**200, "messages": []}),
    ("chat", {"messages": [{"\n": None}]}),
    ("chat", {"messages": [{"role": "user", "content": "a"}, {"role": "gpt", "tool_calls": [[[]]]}]}),
    ("sglang-bench", {"input_lens": [1], "output_lens": [1], "ttfts": ["a"], "itls": [["b"]], "errors": [""]}),
    ("sglang-bench", {"input_lens": [1], "output_lens": ["a"], "generated_texts": [5], "errors": [""]}),
    ("spec-bench", {"question_id": [], "choices": []}),
    ("spec-bench", {"question_id": 1, "choices": [{"new_tokens": ["a"], "accept_lengths": [1], "decoding_steps": 3}]}),
    ("sglang-metrics", {"request_parameters": '{"input_ids": ["x"]}', "finish_reason": "stop", "prompt_tokens": 1}),
    ("arrivals", {"timestamp": True, "input_length": {}, "output_length": []}),
]


@pytest.mark.parametrize(("name", "row"), HARD)
def test_rows_that_are_hard(name, row, path):
    path.write_text(json.dumps(row) + "\n")
    read(name, path)


@pytest.mark.parametrize(
    "text",
    [
        b'[{"a":' + b"[" * 30_000,
        b'{"a":' * 30_000,
        b"{\n" * 30_000,
        b'[{"a": "' + b"x" * 300_000,
        b'{\n "a": "' + b"\\\\" * 150_000,
        b'"' * 300_000,
        b"[" * 300_000,
        b"[" + b"{}," * 30_000,
    ],
    ids=range(8),
)
def test_nesting_and_length_cost_no_memory(name, text, path):
    path.write_bytes(text)
    tracemalloc.start()
    try:
        with pytest.raises(InputError):
            list(importer_class(name)(ImportOptions()).records([path], Tolerance(10)))
        assert tracemalloc.get_traced_memory()[1] < 40 * len(text) + (10 << 20)
    finally:
        tracemalloc.stop()
