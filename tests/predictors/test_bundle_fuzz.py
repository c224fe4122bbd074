"""Bundles that somebody changed: loading refuses them in one sentence, or they predict.

Every example changes one file of a real bundle and seals it again, so that no checksum stands in the way.
benchmarks/fuzz.py searches longer than a test run does.
"""

import hashlib
import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laps_sd.data import PromptRequest
from laps_sd.errors import InputError
from laps_sd.predictors import PredictorBundle, fit_bundle

EXAMPLES = int(os.environ.get("LAPS_SD_FUZZ", "60"))
REQUESTS = [
    PromptRequest(prompt=p, prompt_tokens=9) for p in ("", "Write ten lines about rain.", "雨" * 50, "a b " * 900)
]
ODD: list[Any] = [None, True, 0, -1, 1.5, 1e30, -1e300, 2**70, "", "x", "classes", "lexical", [], [[]], {}, {"a": 1}]

fuzz = settings(
    max_examples=EXAMPLES, deadline=None, derandomize=EXAMPLES == 60, suppress_health_check=list(HealthCheck)
)


@pytest.fixture(scope="module")
def bundles(records, tmp_path_factory) -> dict[str, Path]:
    rows = []
    for i, record in enumerate(records[:120]):
        tokens = 1 + len(record.prompt.split()) % 4  # acceptance follows the prompt, so that its kernel is kept
        steps = {"verify_steps": 40, "accept_lengths": (tokens,) * 40}
        histogram = tuple(40 * (k + 1 == tokens) for k in range(4))
        rows.append(
            record.replace(
                draft="ngram", max_correct_drafts=3, output_tokens=170 + i, correct_drafts_histogram=histogram, **steps
            )
        )
    folder = tmp_path_factory.mktemp("fuzz")
    kinds = ("hazard", "prompt_length")
    return {kind: fit_bundle(rows, predictor=kind).save(folder / kind) for kind in kinds}


@pytest.fixture(scope="module", params=["hazard", "prompt_length"])
def good(request, bundles) -> Path:
    return bundles[request.param]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "changed"


def survives(good: Path, place: Path, name: str, content: bytes) -> None:
    """Load the bundle with one file replaced, and predict with it if it loads."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(good, place)
    (place / name).write_bytes(content)
    if name != "manifest.json":
        manifest = json.loads((place / "manifest.json").read_text())
        manifest["files"][name] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
        (place / "manifest.json").write_text(json.dumps(manifest))
    try:
        bundle = PredictorBundle.load(place)
    except InputError:
        return
    for drafts in (None, 0, 7):
        for prediction in bundle.predict(REQUESTS, max_correct_drafts=drafts):
            assert np.isfinite(prediction.length.mean())
    bundle.predict_one(REQUESTS[1], draft="another")
    bundle.posterior_settings("ngram", 3)


@fuzz
@given(data=st.data())
def test_changed_bytes(good, place, data):
    name = data.draw(st.sampled_from(sorted(f.name for f in good.iterdir())))
    content = bytearray((good / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        # Headers are at the start and, in an archive, at the end.
        size = len(content)
        at = data.draw(
            st.integers(0, size - 1) | st.integers(0, min(400, size - 1)) | st.integers(max(0, size - 400), size - 1)
        )
        new = data.draw(st.binary(max_size=6))
        content[at : at + data.draw(st.integers(0, 6))] = new
        if not content:
            break
    survives(good, place, name, bytes(content))


def nodes(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, child in children for deeper in nodes(child, (*path, key)))]


@fuzz
@given(data=st.data())
def test_changed_values_in_json(good, place, data):
    name = data.draw(st.sampled_from(["length.json", "acceptance.json", "manifest.json"]))
    root = [json.loads((good / name).read_text())]
    *way, last = data.draw(st.sampled_from(nodes(root)[1:]))
    parent: Any = root
    for key in way:
        parent = parent[key]
    if isinstance(parent, dict) and data.draw(st.booleans()):
        del parent[last]
    else:
        parent[last] = data.draw(st.sampled_from(ODD))
    survives(good, place, name, json.dumps(root[0]).encode())


WORDS = st.integers(-20, 20).map(str) | st.sampled_from(
    ["", "999999999", "1e400", "nan", "inf", "-0", "1e-5", "=", "a b", "0x1"]
)


@fuzz
@given(data=st.data())
def test_changed_trees(bundles, place, data):
    good, name = bundles["hazard"], "length.trees.txt"
    lines = (good / name).read_text().split("\n")
    end = lines.index("end of trees")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, min(end, len(lines) - 1)))
        match data.draw(st.sampled_from(["word", "word", "word", "drop", "double", "move"])):
            case "word":
                head, sign, values = lines[at].partition("=")
                words = values.split(" ")
                words[data.draw(st.integers(0, len(words) - 1))] = data.draw(WORDS)
                lines[at] = head + sign + " ".join(words)
            case "drop":
                del lines[at]
            case "double":
                lines.insert(at, lines[at])
            case "move":
                lines.insert(data.draw(st.integers(0, end - 1)), lines.pop(at))
    survives(good, place, name, "\n".join(lines).encode())


@fuzz
@given(data=st.data())
def test_changed_arrays(good, place, data):
    name = data.draw(st.sampled_from(["length.npz", "acceptance.npz"]))
    with np.load(good / name, allow_pickle=False) as stored:
        arrays = {key: stored[key] for key in stored.files}
    key = data.draw(st.sampled_from(sorted(arrays)))
    array = arrays[key].copy()
    match data.draw(st.sampled_from(["value", "value", "scale", "shape", "type", "drop", "rename", "shuffle"])):
        case "value":
            numbers = st.sampled_from([0, -1, 1, 1e9, -1e29, 1e29, 1e-30, np.nan, np.inf])
            with np.errstate(invalid="ignore", over="ignore"):
                number = np.array(data.draw(numbers)).astype(array.dtype)
            array.ravel()[data.draw(st.integers(0, array.size - 1))] = number
        case "scale":
            array = (array * data.draw(st.sampled_from([0, -1, 1e-20, 1e5]))).astype(array.dtype)
        case "shape":
            array = data.draw(
                st.sampled_from([array[:-1], array[None], array.ravel(), array[:0], array.T, array[..., :1]])
            )
        case "type":
            array = array.astype(data.draw(st.sampled_from(["f2", "f4", ">f8", "i4", "u1", "?", "c16", "U3"])))
        case "shuffle":
            array = np.random.default_rng(data.draw(st.integers(0, 9))).permutation(array)
    arrays[key] = array
    if data.draw(st.integers(0, 9)) == 0:
        arrays[key + "x"] = arrays.pop(key)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    survives(good, place, name, buffer.getvalue())
