"""What every importer keeps to, whoever registered it: found by name, documented, tolerant, the same twice."""

from pathlib import Path

import pytest

from laps_sd.cli import run
from laps_sd.data import read_records
from laps_sd.data.importers import ImportOptions, formats_list, formats_table, import_records, importer_class
from laps_sd.data.records.bad_rows import Tolerance
from laps_sd.errors import InputError
from laps_sd.extensions import IMPORTERS

ROOT = Path(__file__).parents[3]
NAMES = IMPORTERS.names()


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.fixture
def sample(name, samples, tmp_path):
    path = tmp_path / f"sample{'.csv' if name == 'arrivals' else '.jsonl'}"
    path.write_bytes(samples[name])
    return path


def test_every_format_has_a_sample(samples):
    assert set(samples) == set(NAMES)


def test_a_format_says_what_it_is_and_which_options_it_reads(name):
    kind = importer_class(name)
    assert kind.summary
    assert kind.example.endswith("--out trace.parquet")
    assert kind.uses <= set(ImportOptions.__dataclass_fields__)
    assert kind.__doc__ is not None


def test_a_sample_becomes_records_with_ids_of_their_own_and_the_same_ones_twice(name, sample):
    first, second = (list(import_records(name, [sample])) for _ in range(2))
    assert first == second
    assert first
    assert len({record.request_id for record in first}) == len(first)


def test_what_the_user_knows_fills_gaps(name, sample):
    options = ImportOptions(model="mine", draft="ngram", source="here")
    for record in import_records(name, [sample], options):
        assert record.model
        assert record.draft
        assert record.source


@pytest.mark.parametrize("junk", [b"5\n", b'{"a": 1}\n', b"[]\n", b"\x00\x01\x02", b"", b'"text"\n', b"\xff\xfe{}"])
def test_what_is_not_of_the_format_is_one_sentence(name, junk, tmp_path):
    path = tmp_path / "junk"
    path.write_bytes(junk)
    with pytest.raises(InputError) as error:
        list(import_records(name, [path]))
    assert "\n" not in str(error.value)
    assert "junk" in str(error.value)


def test_a_bad_row_is_left_out_when_that_is_allowed(name, sample, samples):
    sample.write_bytes(samples[name].rstrip(b"\n") + b"\n{]\n")
    with pytest.raises(InputError, match=r"line \d+"):
        list(import_records(name, [sample]))
    told: list[str] = []
    records = list(import_records(name, [sample], tolerance=Tolerance(1, told.append)))
    assert len(told) == 1
    assert records


#: Rows of these bring their ids along; those of the others are named after their place.
NAMED = {"records", "spec-bench", "sglang-metrics"}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NAMED])
def test_files_of_one_name_in_two_folders_give_ids_of_their_own(name, samples, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "answers.json").write_bytes(samples[name])
    records = list(import_records(name, [tmp_path / "a" / "answers.json", tmp_path / "b" / "answers.json"]))
    assert len({record.request_id for record in records}) == len(records)
    assert {record.request_id.split("/")[0] for record in records} == {"a", "b"}


def test_the_command_reads_it(name, sample, tmp_path, capsys):
    out = tmp_path / "trace.parquet"
    assert run(["import", name, str(sample), "--out", str(out)]) == 0
    assert read_records(out) == list(import_records(name, [sample]))
    assert f"{len(read_records(out))} records in" in capsys.readouterr().err


def test_help_and_formats_name_every_format(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["import", "--help"]) == 0
    shown = capsys.readouterr().out
    assert [name for name in NAMES if name not in shown] == []
    assert run(["import", "--formats"]) == 0
    shown = capsys.readouterr().out
    assert [name for name in NAMES if name not in shown] == []


def test_the_command_names_the_way_around_a_bad_row(tmp_path, capsys):
    path = tmp_path / "r.jsonl"
    path.write_text("{]\n")
    assert run(["import", "records", str(path), "--out", str(tmp_path / "t.jsonl")]) == 2
    assert "(--skip-bad N leaves out up to N such rows)" in capsys.readouterr().err


def test_an_unknown_format_is_refused_with_the_known_ones(tmp_path, capsys):
    assert run(["import", "chats", "any", "--out", str(tmp_path / "t.jsonl")]) == 2
    assert "unknown format 'chats'; did you mean 'chat'?" in capsys.readouterr().err


def test_an_option_that_a_format_does_not_read_is_said(samples, tmp_path, capsys):
    path = tmp_path / "r.jsonl"
    path.write_bytes(samples["records"])
    assert run(["import", "records", str(path), "--natural-ends", "--out", str(tmp_path / "t.jsonl")]) == 0
    assert "--natural-ends changes nothing: records has no use for it" in capsys.readouterr().err


def test_the_documentation_tells_of_every_format():
    text = (ROOT / "docs" / "records.md").read_text(encoding="utf-8")
    for mark, wanted in (("formats", formats_table()), ("unsaid", formats_list())):
        part = text.split(f"<!-- {mark} -->\n")[1].split(f"<!-- /{mark} -->")[0]
        assert part == wanted, f"put this between the marks in docs/records.md:\n{wanted}"
