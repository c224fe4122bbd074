"""Arrival traces that everybody has are read as they are, in seconds from the first request on."""

import gzip
import json

import pytest

from laps_sd.cli import run
from laps_sd.data.importers import ImportOptions, importer_class
from laps_sd.data.importers.arrivals import LAYOUTS
from laps_sd.errors import InputError

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
AZURE_2023 = AZURE + "2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:50.9951690,396,109\r\n"
AZURE_2024 = AZURE + "2024-05-10 00:00:00.009930+00:00,10,20\n2024-05-10 00:01:00.009930+00:00,3,4\n"
BURST = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,87,0,87,API log\n"
)
BURST_SESSIONS = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5.5,s1,2.5,ChatGPT,4,18,22,Conversation log\n9.5,s1,1.0,ChatGPT,30,2,32,Conversation log\n"
)
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n1.5,7,8\n2.75,9,10\n"
VIDUR_LENGTHS = "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n7,8,15,0.875\n9,10,19,0.9\n"


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


MOONCAKE = lines(
    {"timestamp": 1000, "input_length": 6, "output_length": 5, "hash_ids": [1, 2]},
    {"timestamp": 28500, "input_length": 7, "output_length": 9, "hash_ids": [1, 3]},
)
BAILIAN = lines(
    {
        "chat_id": 1,
        "parent_chat_id": -1,
        "timestamp": 61.5,
        "input_length": 6,
        "output_length": 5,
        "type": "text",
        "turn": 1,
    },
    {
        "chat_id": 2,
        "parent_chat_id": 1,
        "timestamp": 64.0,
        "input_length": 7,
        "output_length": 9,
        "type": "search",
        "turn": 2,
    },
)


@pytest.fixture
def read(tmp_path):
    def read(text, name="trace.csv", **options):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        importer = importer_class("arrivals")(ImportOptions(**options))
        return list(importer.records([path])), " ".join(importer.remarks())

    return read


@pytest.mark.parametrize(
    ("text", "name", "times", "lengths"),
    [
        (AZURE_2023, "Azure", [0.0, 4.314579], [(374, 44), (396, 109)]),
        (AZURE_2024, "Azure", [0.0, 60.0], [(10, 20), (3, 4)]),
        (BURST, "BurstGPT", [0.0, 40.0], [(472, 18), (87, 0)]),
        (BURST_SESSIONS, "BurstGPT", [0.0, 4.0], [(4, 18), (30, 2)]),
        (MOONCAKE, "Mooncake", [0.0, 27.5], [(6, 5), (7, 9)]),
        (BAILIAN, "Bailian", [0.0, 2.5], [(6, 5), (7, 9)]),
        (VIDUR, "Vidur", [0.0, 1.25], [(7, 8), (9, 10)]),
    ],
)
def test_a_public_trace_is_known_by_its_columns(read, text, name, times, lengths):
    found, remarks = read(text)
    assert [r.arrival_s for r in found] == pytest.approx(times, abs=1e-6)
    assert [(r.prompt_tokens, r.output_tokens) for r in found] == lengths
    assert f"read as {name}" in remarks


def test_lengths_without_arrivals_are_read_and_that_is_said(read):
    found, remarks = read(VIDUR_LENGTHS)
    assert [(r.arrival_s, r.prompt_tokens, r.output_tokens) for r in found] == [(None, 7, 8), (None, 9, 10)]
    assert "without times that tell them apart" in remarks


def test_burstgpt_s_models_sessions_and_failures_are_kept(read):
    first, second = read(BURST)[0]
    assert (first.model, first.category, first.finish_reason) == ("ChatGPT", "Conversation log", "stop")
    assert (second.model, second.finish_reason) == ("GPT-4", "abort")
    assert {r.group for r in read(BURST_SESSIONS)[0]} == {"s1"}


def test_other_columns_are_kept(read):
    assert [r.extra for r in read(MOONCAKE)[0]] == [{"hash_ids": [1, 2]}, {"hash_ids": [1, 3]}]
    assert [r.category for r in read(BAILIAN)[0]] == ["text", "search"]


def test_compressed_files_and_arrays_are_read_alike(read):
    plain = read(MOONCAKE, "trace.jsonl")[0]
    assert read(gzip.compress(MOONCAKE.encode()), "trace.jsonl")[0] == plain
    array = json.dumps([json.loads(line) for line in MOONCAKE.splitlines()])
    assert [r.arrival_s for r in read(array, "trace.jsonl")[0]] == [r.arrival_s for r in plain]


def test_requests_out_of_order_count_from_the_earliest(read):
    assert [r.arrival_s for r in read(VIDUR + "0.5,1,1\n")[0]] == [1.0, 2.25, 0.0]


def test_whole_numbers_that_pandas_wrote_as_floats_are_whole(read):
    found, _ = read("arrival_s,input_tokens,output_tokens\n0.5,374.0,44.0\n")
    assert (found[0].arrival_s, found[0].prompt_tokens, found[0].output_tokens) == (0.5, 374, 44)
    with pytest.raises(InputError, match="line 2: prompt_tokens: expected an integer"):
        read("arrival_s,input_tokens,output_tokens\n0.5,374.5,44.0\n")


def sparse(step):
    return "arrival_s,input_tokens,output_tokens\n" + "".join(f"{i * step},100,50\n" for i in range(50))


def test_span_and_pace_are_said_and_a_sparse_trace_is_asked_about(read):
    _, remarks = read(sparse(40_000))
    assert "50 requests in 22.7 days, 2.5e-05 per second" in remarks
    assert "are its times really in s? --time-unit ms" in remarks
    found, remarks = read(sparse(40_000), time_unit="ms")
    assert found[-1].arrival_s == 49 * 40.0
    assert "50 requests in 1,960.0 s, 0.025 per second" in remarks
    assert "really" not in read(sparse(4))[1]


def test_an_unknown_unit_is_refused(read):
    with pytest.raises(InputError, match="--time-unit weeks: expected one of s, ms, us, ns"):
        read(VIDUR, time_unit="weeks")


def test_columns_that_are_no_trace_are_named(read):
    with pytest.raises(InputError, match=r"line 1: expected the columns arrival_s.*Azure.*Vidur; got 'when, how long'"):
        read("when,how long\n1,2\n")


@pytest.mark.parametrize("cell", ["", "soon", "nan", "inf", "-1", "1e400", "9" * 400, "2023-13-45 00:00:00"])
def test_a_time_that_is_none_is_refused_by_line(read, cell):
    with pytest.raises(InputError, match=r"line 2: arrival_s: expected"):
        read(f"arrival_s,input_tokens,output_tokens\n{cell},1,2\n")


def test_no_two_layouts_are_told_apart_by_nothing():
    assert len({(frozenset(one.needed), one.name == "Bailian") for one in LAYOUTS}) == len(LAYOUTS)


def test_the_command_takes_the_unit(tmp_path, capsys):
    (tmp_path / "trace.csv").write_text(sparse(40_000))
    arguments = ["import", "arrivals", str(tmp_path / "trace.csv"), "--out", str(tmp_path / "trace.parquet")]
    assert run([*arguments, "--time-unit", "ms"]) == 0
    assert "50 requests in 1,960.0 s" in capsys.readouterr().err
