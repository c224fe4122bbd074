"""Ports: a free one, one that is taken, and numbers that are none."""

import socket

import pytest

from laps_sd.errors import InputError, WorkError
from laps_sd.serving.process.server import free_port, require_free


def test_a_free_port_is_free():
    require_free(free_port())


def test_a_port_in_use_is_refused():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(WorkError, match="in use"):
            require_free(taken.getsockname()[1])


@pytest.mark.parametrize("port", [0, 65536, 99999999])
def test_a_number_that_is_no_port_is_refused(port):
    with pytest.raises(InputError, match="is no TCP port"):
        require_free(port)
