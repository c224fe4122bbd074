"""Files that appear whole or not at all."""

import errno
import os
import stat

import pytest

from laps_sd.errors import InputError, WorkError
from laps_sd.files import replacing, write_text


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_file_appears_at_the_end_with_its_folders(tmp_path):
    path = tmp_path / "new" / "folder" / "a.txt"
    with replacing(path) as file:
        file.write(b"whole")
        file.flush()
        assert not path.exists()
    assert path.read_bytes() == b"whole"
    assert names(path.parent) == ["a.txt"]


def test_others_may_read_it_as_the_umask_says(tmp_path):
    old = os.umask(0o022)
    try:
        with replacing(tmp_path / "a.txt") as file:
            file.write(b"whole")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o644


@pytest.mark.parametrize(
    ("error", "seen", "says"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), WorkError, r"a\.txt cannot be written: No space left"),
        (KeyboardInterrupt(), KeyboardInterrupt, None),
        (InputError("row 3 is bad"), InputError, "row 3"),
    ],
)
def test_what_was_there_survives_a_failure_half_way(tmp_path, error, seen, says):
    (tmp_path / "a.txt").write_text("old")

    def fail():
        with replacing(tmp_path / "a.txt") as file:
            file.write(b"half")
            raise error

    with pytest.raises(seen, match=says):
        fail()
    assert (tmp_path / "a.txt").read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "link.txt").symlink_to(tmp_path / "real.txt")
    with replacing(tmp_path / "link.txt") as file:
        file.write(b"whole")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "whole"


def test_a_name_as_long_as_names_may_be_is_written(tmp_path):
    path = tmp_path / ("a" * 255)
    write_text(path, "whole \udcff")
    assert path.read_text() == "whole \\udcff"


def test_a_place_where_nothing_can_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path, says in (
        (tmp_path, "is a folder"),
        (tmp_path / "pipe", "device or a pipe"),
        (tmp_path / "file" / "a.txt", "cannot be written"),
        (tmp_path / "loop", "loop cannot be written"),
        (tmp_path / ("a" * 300), "cannot be written: File name too long"),
        (tmp_path / "nul\0", "cannot be written"),
    ):
        with pytest.raises(InputError, match=says), replacing(path):
            raise AssertionError("opened")
    assert names(tmp_path) == ["file", "loop", "pipe"]
