"""The bundle on disk: whole or not at all, the same numbers after loading, refused with one reason."""

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from laps_sd.data import PromptRequest, RequestRecord
from laps_sd.errors import InputError, WorkError
from laps_sd.predictors import PredictorBundle, fit_bundle
from laps_sd.predictors.store import SCHEMA_VERSION, write_folder

PROMPTS = [PromptRequest(prompt=p) for p in ("Write a story about a fox.", "Is water wet?", "", "写一首诗", "🙂")]


@pytest.fixture(scope="module")
def bundle(records):
    return fit_bundle(records[:150])


@pytest.fixture
def folder(bundle, tmp_path):
    return bundle.save(tmp_path / "bundle")


def test_a_loaded_bundle_says_what_the_saved_one_said(bundle, folder):
    loaded = PredictorBundle.load(folder)
    assert loaded.predict(PROMPTS) == bundle.predict(PROMPTS)
    assert loaded.predict_one(PROMPTS[0]) == bundle.predict_one(PROMPTS[0])
    assert loaded.manifest["features"] == "lexical"


def test_a_prompt_gets_the_same_numbers_alone_and_in_a_batch(records, bundle):
    long = [PromptRequest(prompt=f"in {n} words or ten lines: " + "Why? " * n) for n in (3, 40, 700)]
    batch = PROMPTS + long + [PromptRequest.from_record(r) for r in records[150:350]]
    for request, together in zip(batch, bundle.predict(batch), strict=True):
        alone = bundle.predict_one(request)
        assert alone.length.survival == pytest.approx(together.length.survival, abs=1e-6)
        assert alone.accept_length == pytest.approx(together.accept_length, abs=1e-6)
        assert alone.accept_strength == together.accept_strength


def test_the_same_records_and_seed_give_the_same_files(records, bundle, folder, tmp_path):
    again = fit_bundle(records[:150]).save(tmp_path / "again")
    for file in folder.iterdir():
        assert file.read_bytes() == (again / file.name).read_bytes(), file.name


def test_the_manifest_tells_versions_training_data_and_checksums(folder, records):
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["schema_version"] == SCHEMA_VERSION
    assert manifest["training"]["n"] == 150
    assert manifest["training"]["fingerprint"]["models"] == ["small"]
    assert {"laps_sd", "python", "lightgbm", "numpy"} <= set(manifest["created_by"])
    assert set(manifest["files"]) == {f.name for f in folder.iterdir()} - {"manifest.json"}


def test_nothing_in_the_folder_can_be_run(folder):
    assert {f.suffix for f in folder.iterdir()} == {".json", ".npz", ".txt"}
    for file in folder.glob("*.npz"):
        with np.load(file, allow_pickle=False) as arrays:  # refuses pickled objects
            assert all(arrays[name].dtype.kind in "fiu" for name in arrays.files)


def test_an_older_bundle_is_replaced_whole(bundle, folder, records):
    other = fit_bundle(records, predictor="constant")
    other.save(folder)
    assert PredictorBundle.load(folder).manifest["predictor"] == "constant"
    assert [p.name for p in folder.parent.iterdir()] == ["bundle"]


def test_a_folder_with_other_things_in_it_is_left_alone(bundle, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="is not a bundle"):
        bundle.save(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_bundle_beside_files_of_somebody_elses_is_not_replaced(bundle, folder):
    (folder / "notes.txt").write_text("which run this was")
    with pytest.raises(InputError, match=r"holds more than a bundle \('notes.txt'\)"):
        bundle.save(folder)
    assert (folder / "notes.txt").read_text() == "which run this was"


@pytest.mark.parametrize("manifest", ['{"name": "a web application"}', "not JSON"])
def test_a_folder_with_another_programs_manifest_is_left_alone(bundle, tmp_path, manifest):
    (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(InputError, match="is not a bundle"):
        bundle.save(tmp_path)
    assert (tmp_path / "manifest.json").read_text() == manifest


def test_a_link_to_a_bundle_stays_a_link(bundle, folder, records):
    link = folder.with_name("current")
    link.symlink_to(folder)
    fit_bundle(records, predictor="constant").save(link)
    assert link.is_symlink()
    assert PredictorBundle.load(folder).manifest["predictor"] == "constant"


def test_a_write_that_fails_leaves_the_old_bundle_and_nothing_else(bundle, folder, monkeypatch):
    before = PredictorBundle.load(folder).manifest
    monkeypatch.setattr("laps_sd.predictors.store._sha256", lambda _: (_ for _ in ()).throw(OSError(28, "disk full")))
    with pytest.raises(WorkError, match=r"bundle .* cannot be written: disk full"):
        bundle.save(folder)
    monkeypatch.undo()
    assert PredictorBundle.load(folder).manifest == before
    assert [p.name for p in folder.parent.iterdir()] == ["bundle"]


def test_an_interrupt_between_old_and_new_brings_the_old_bundle_back(bundle, folder, monkeypatch):
    before = PredictorBundle.load(folder).manifest
    replace = Path.replace

    def interrupted(self, target):
        replace(self, target)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bundle.save(folder)
    assert PredictorBundle.load(folder).manifest == before
    assert [p.name for p in folder.parent.iterdir()] == ["bundle"]


@pytest.mark.parametrize(
    "name", ["length.json", "length.npz", "length.trees.txt", "length.terms.txt", "acceptance.json"]
)
def test_a_flipped_byte_is_refused(folder, name):
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=f"damaged .checksum of {name} differs"):
        PredictorBundle.load(folder)


def test_a_missing_file_is_refused(folder):
    (folder / "length.npz").unlink()
    with pytest.raises(InputError, match=r"damaged \(length.npz: No such file"):
        PredictorBundle.load(folder)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schema_version": SCHEMA_VERSION + 1}, "newer than"),
        ({"schema_version": None}, "damaged"),
        ({"format": "something else"}, "not the manifest"),
        ({"files": []}, "not the manifest"),
        ({"files": {"../../etc/passwd": {"sha256": ""}}}, "damaged"),
        ({"files": {"..": {"sha256": "", "bytes": 0}}}, "damaged"),
        ({"files": {"a\0b": {"sha256": "", "bytes": 0}}}, "damaged"),
        ({"files": {}}, "cannot be used"),
    ],
)
def test_a_manifest_that_is_not_ours_is_refused(folder, change, reason):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, **change}))
    with pytest.raises(InputError, match=reason):
        PredictorBundle.load(folder)


def test_a_file_cut_short_is_refused_by_its_size(folder):
    (folder / "length.npz").write_bytes((folder / "length.npz").read_bytes()[:-1])
    with pytest.raises(InputError, match=r"damaged \(length.npz has another size"):
        PredictorBundle.load(folder)


def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(folder):
    (folder / "length.npz").unlink()
    os.mkfifo(folder / "length.npz")
    with pytest.raises(InputError, match=r"length.npz is no regular file"):
        PredictorBundle.load(folder)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("length.npz", b"PK\x03\x04 no archive"),
        ("length.json", b"[" * 100_000),
        ("length.json", b"[]"),
        ("acceptance.json", b'{"kind": "acceptance", "meta": []}'),
        ("length.trees.txt", b"no trees"),
    ],
)
def test_false_content_with_a_true_checksum_is_refused(folder, name, content):
    resealed(folder, name, content)
    with pytest.raises(InputError, match=r"cannot be (read|used)"):
        PredictorBundle.load(folder)


def resealed(folder: Path, name: str, content: bytes) -> None:
    """Replace a file and its checksum, as somebody would who wants it read."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def arrays_of(folder: Path, name: str = "length.npz") -> dict[str, np.ndarray]:
    with np.load(folder / name, allow_pickle=False) as stored:
        return {key: stored[key] for key in stored.files}


def saved(arrays: dict[str, np.ndarray], save=np.savez) -> bytes:
    buffer = io.BytesIO()
    save(buffer, **arrays)
    return buffer.getvalue()


@pytest.mark.parametrize("name", ["length.npz", "manifest.json"])
def test_a_link_in_the_place_of_a_file_is_refused(folder, name):
    outside = folder.with_name("outside")
    (folder / name).rename(outside)
    (folder / name).symlink_to(outside)
    with pytest.raises(InputError, match=f"{name} is a link, which is not followed"):
        PredictorBundle.load(folder)


def test_compressed_arrays_are_refused_before_they_are_expanded(folder):
    bomb = saved({**arrays_of(folder), "zeros": np.zeros(10_000_000)}, np.savez_compressed)
    resealed(folder, "length.npz", bomb)
    with pytest.raises(InputError, match="larger than their file"):
        PredictorBundle.load(folder)
    resealed(folder, "length.npz", saved(arrays_of(folder) | {"x": np.arange(3.0)}, np.savez_compressed))
    with pytest.raises(InputError, match=r"larger than their file|is compressed"):
        PredictorBundle.load(folder)


def test_a_header_that_asks_for_more_than_there_is_takes_no_memory(folder):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<i8", "fortran_order": False, "shape": (2**30,)})
    archive = io.BytesIO(saved(arrays_of(folder)))
    with zipfile.ZipFile(archive, "a") as stored:
        stored.writestr("more.npy", b"\x93NUMPY\x01\x00" + header.getvalue().removeprefix(b"\x93NUMPY\x01\x00"))
    resealed(folder, "length.npz", archive.getvalue())
    with pytest.raises(InputError, match="another size than its header says"):
        PredictorBundle.load(folder)


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("edges", lambda a: a[::-1].copy(), "its edges are not"),
        ("edges", lambda a: np.r_[a[:-1], np.iinfo(np.int64).min, a[-1]], "its edges are not"),
        ("edges", lambda a: a.astype(float), "expected"),
        ("edges", lambda a: np.arange(500), "its edges are not"),
        ("offset", lambda a: a * np.nan, "not a finite number"),
        ("offset", lambda a: a[:-1], "'offset' has shape"),
        ("basis", lambda a: a.ravel(), "'basis' has shape"),
        ("linear", lambda a: a[:-1], "'linear' has shape"),
        ("predicted", lambda a: a[::-1].copy(), "no increasing map"),
        ("observed", lambda a: a * 2, "no probability"),
        ("features/scale", lambda a: a * 0, "scale is not positive"),
        ("features/center", lambda a: a[:-1], "'center' has shape"),
        ("features/landmarks", lambda a: a[:, :-1].copy(), "'landmarks' has shape"),
        ("features/kernel_weights", lambda a: a[:-1], "'kernel_weights' has shape"),
        ("features/word_table", lambda a: a[:-1], "does not fit its vocabulary"),
        ("features/word_squares", lambda a: -a, "do not fit it"),
        ("features/word_table", lambda a: a * np.float32(1e38), "not a finite number"),
    ],
)
def test_arrays_that_would_fail_every_prediction_are_refused(folder, name, change, reason):
    arrays = arrays_of(folder)
    arrays[name] = change(arrays[name])
    resealed(folder, "length.npz", saved(arrays))
    with pytest.raises(InputError, match=reason):
        PredictorBundle.load(folder)


@pytest.mark.parametrize(("name", "value"), [("mean", "true"), ("mean", '"2"'), ("mean", "0.5"), ("strength", "-1")])
def test_a_prior_out_of_bounds_is_refused(folder, name, value):
    text = (folder / "acceptance.json").read_text()
    resealed(folder, "acceptance.json", re.sub(rf'"{name}": [\d.]+', f'"{name}": {value}', text).encode())
    with pytest.raises(InputError, match=f"its {name} is not a number from"):
        PredictorBundle.load(folder)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_a_number_that_is_none_is_refused_in_json(folder, number):
    text = (folder / "acceptance.json").read_text()
    changed = re.sub(r'"mean": [-\d.e]+', f'"mean": {number}', text, count=1)
    assert changed != text
    resealed(folder, "acceptance.json", changed.encode())
    with pytest.raises(InputError, match="is not a number"):
        PredictorBundle.load(folder)


def test_trees_that_read_other_features_are_refused(folder):
    text = (folder / "length.trees.txt").read_text()
    resealed(folder, "length.trees.txt", re.sub(r"max_feature_idx=\d+", "max_feature_idx=200", text).encode())
    with pytest.raises(InputError, match="its trees read 201 features"):
        PredictorBundle.load(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "\x00", "[" * 100_000])
def test_a_broken_manifest_is_refused(folder, text):
    (folder / "manifest.json").write_text(text)
    with pytest.raises(InputError):
        PredictorBundle.load(folder)


def test_no_bundle_is_said_plainly(tmp_path):
    with pytest.raises(InputError, match="is not a bundle"):
        PredictorBundle.load(tmp_path / "nowhere")


def test_features_that_this_version_does_not_compute_are_refused(bundle, tmp_path):
    state = bundle.length.to_state()
    state.meta["features"]["names"][3] = "phase_of_the_moon"
    write_folder(tmp_path / "b", {"length": state, "acceptance": bundle.acceptance.to_state()}, bundle.manifest)
    with pytest.raises(InputError, match="other features"):
        PredictorBundle.load(tmp_path / "b")


def test_a_server_loads_it_without_the_tools_of_training(folder):
    code = (
        "import sys; from laps_sd.predictors import PredictorBundle; from laps_sd.data import PromptRequest;"
        f"b = PredictorBundle.load({str(folder)!r}); b.predict_one(PromptRequest(prompt='hello'));"
        "print(sorted({m.split('.')[0] for m in sys.modules} & "
        "{'sklearn', 'scipy', 'lightgbm', 'pandas', 'mlflow', 'torch'}))"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["predictors.fit_bundle", "training.train"])
def test_training_without_scikit_learn_is_refused_by_its_name(name):
    room, _, function = name.partition(".")
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "from laps_sd.errors import WorkError\n"
        f"try: from laps_sd.{room} import {function}\n"
        "except WorkError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "this needs scikit-learn, which is not installed: pip install 'laps-sd[train]'"


class TestFitting:
    def test_records_without_text_are_left_out(self, records):
        bare = [RequestRecord(request_id="x", prompt_tokens=3, output_tokens=9, finish_reason="stop")]
        assert fit_bundle([*records[:40], *bare], predictor="constant").manifest["training"]["n"] == 40

    def test_records_all_without_text_are_refused(self):
        bare = [
            RequestRecord(request_id=str(i), prompt_tokens=3, output_tokens=9, finish_reason="stop") for i in range(50)
        ]
        with pytest.raises(InputError, match="prompt text"):
            fit_bundle(bare)

    @pytest.mark.parametrize(("name", "value"), [("features", "magic"), ("predictor", "oracle")])
    def test_unknown_names_are_refused_with_the_known_ones(self, records, name, value):
        with pytest.raises(InputError, match="known are"):
            fit_bundle(records, **{name: value})

    @pytest.mark.parametrize("predictor", ["constant", "prompt_length", "asked_for"])
    def test_the_baselines_make_bundles_too(self, records, predictor, tmp_path):
        bundle = fit_bundle(records, predictor=predictor)
        assert PredictorBundle.load(bundle.save(tmp_path / "b")).predict(PROMPTS) == bundle.predict(PROMPTS)
