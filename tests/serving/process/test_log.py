"""One line out of SGLang's log that says why the server died."""

from pathlib import Path

import pytest

from laps_sd.serving.process.log import telling_line

SIGQUIT = "[2026-12-01 10:00:02] Received sigquit from a child process. It usually means the child failed."
DIED = "RuntimeError: Rank 0 scheduler died during initialization (exit code: 1)."
STAMPED = "[2026-12-01 10:00:01] "


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (f"ValueError: a\nlaps-sd: the bundle is missing\n{SIGQUIT}", "the bundle is missing"),
        (
            f"{STAMPED}Scheduler hit an exception: Traceback\nOSError: no space\n\n{SIGQUIT}\n{DIED}",
            "OSError: no space",
        ),
        ("a.b.OutOfMemoryError: 3 GB\nKeyboardInterrupt\n", "a.b.OutOfMemoryError: 3 GB"),
        ("usage: x\nlaunch_server.py: error: unrecognized arguments: --x\n", "launch_server.py: error: unrecognized"),
        (f"{STAMPED}loading\n{STAMPED}Killed\n", "Killed"),
        ("", "it wrote nothing"),
        ("AssertionError: " + "x" * 999, "AssertionError: xxx"),
    ],
)
def test_the_line_that_tells_why_a_server_died(tmp_path: Path, log: str, line: str) -> None:
    path = tmp_path / "server.log"
    path.write_text(log)
    found = telling_line(path)
    assert found.startswith(line)
    assert len(found) <= 300


def test_a_log_that_is_gone_is_said(tmp_path: Path) -> None:
    assert telling_line(tmp_path / "none") == "its log cannot be read (No such file or directory)"
