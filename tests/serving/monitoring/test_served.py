"""What a server says that it serves with."""

import pytest

from laps_sd.serving.monitoring.served import Served

FULL = Served("models:/m@champion", "3", "abc", "0.5.23", "laps-sd")


def test_a_line_names_policy_bundle_version_run_and_release() -> None:
    assert str(FULL) == (
        "requests are ranked by laps-sd, with bundle models:/m@champion (version 3, run abc), in SGLang 0.5.23"
    )


@pytest.mark.parametrize(
    ("served", "says"),
    [
        (Served("", "", "", "0.5.23", "las"), "without a bundle"),
        (Served("bundle", "", "", "0.5.23", "laps-sd"), "with bundle bundle"),
        (Served("bundle", "", "abc", "0.5.23", "laps-sd"), "with bundle bundle (run abc)"),
    ],
)
def test_what_is_not_known_is_left_out(served: Served, says: str) -> None:
    assert served.of_bundle() == says


def test_what_a_server_tells_is_read_back() -> None:
    assert Served.told(FULL.labels()) == FULL
    assert Served.told({**FULL.labels(), "policy": "fcfs", "failed_hook": "x"}) == Served(
        "models:/m@champion", "3", "abc", "0.5.23", "fcfs"
    )
    assert Served.told({"policy": "laps-sd"}) is None, "a server that names no bundle"
