"""TCP ports on this machine, 127.0.0.1 only."""

import random
import socket

from laps_sd.errors import InputError, WorkError


def free_port() -> int:
    """A port that is free now, below the range from which the kernel takes the ports of outgoing connections."""
    for port in random.SystemRandom().sample(range(20000, 32000), 200):
        if _bindable(port):
            return port
    raise WorkError("no free TCP port between 20000 and 32000 on 127.0.0.1")


def require_free(port: int) -> None:
    """Raise :class:`WorkError` when the port is in use, :class:`InputError` when there is no such port."""
    if not 0 < port < 65536:
        raise InputError(f"{port} is no TCP port; choose one from 1 to 65535")
    if not _bindable(port):
        raise WorkError(f"port {port} is in use on 127.0.0.1; stop what listens there or choose another port")


def _bindable(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
