"""Ports for the servers of a test."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from secrets import SystemRandom

# Below the ports from which the system takes those of clients (32768 on Linux), so that no connection takes one before
# its server starts; each of pytest's workers has a range of its own.
_FIRST, _OF_A_WORKER, _WORKERS = 20_000, 1_500, 8
_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Different ports of 127.0.0.1 on which nothing listens; none is given twice."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
    first, ports = _FIRST + worker * _OF_A_WORKER, list[int]()
    for port in SystemRandom().sample(range(first, first + _OF_A_WORKER), _OF_A_WORKER):
        if len(ports) == count:
            break
        if port not in _given:
            with suppress(OSError), socket.create_server(("127.0.0.1", port)):
                ports.append(port)
    _given.update(ports)
    return ports
