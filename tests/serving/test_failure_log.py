"""What fails often is said once with its place, and then now and then."""

import logging

import pytest

from laps_sd.serving.failure_log import EVERY, FailureLog


def failing(log: FailureLog, where: str, error: type[Exception] = ValueError) -> None:
    try:
        exec(compile(f"raise error('{where}')", where, "exec"))
    except error as raised:
        log.note(raised)


def test_the_first_of_each_kind_comes_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    log = FailureLog(logging.getLogger("test"), "nothing came of it")
    for _ in range(3):
        failing(log, "here")
        failing(log, "there")
        failing(log, "there", KeyError)
    assert [record.exc_info is not None for record in caplog.records] == [True] * 3
    assert caplog.records[0].message == "laps-sd: nothing came of it (ValueError: here)"


def test_then_every_thousandth_without(caplog: pytest.LogCaptureFixture) -> None:
    log = FailureLog(logging.getLogger("test"), "nothing came of it")
    for _ in range(2 * EVERY):
        failing(log, "here")
    assert [record.message for record in caplog.records[1:]] == [
        f"laps-sd: nothing came of it (ValueError: here), {count} times by now" for count in (1000, 2000)
    ]


def test_places_without_end_fill_neither_log_nor_memory(caplog: pytest.LogCaptureFixture) -> None:
    log = FailureLog(logging.getLogger("test"), "nothing came of it")
    for i in range(500):
        failing(log, f"place{i}")
    assert len(caplog.records) == 65


def test_an_error_that_was_never_raised_has_no_place(caplog: pytest.LogCaptureFixture) -> None:
    FailureLog(logging.getLogger("test"), "nothing came of it").note(ValueError("made only"))
    assert "made only" in caplog.text
