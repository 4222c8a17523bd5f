"""Where the server listens, and what clients must know to be answered there."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from contextlib import suppress

from components.core.errors import InputError

TOKEN = "CLIPTUNE_SERVE_TOKEN"
_SHORTEST = 16


def read_tokens(host: str, environment: Mapping[str, str]) -> list[str]:
    """The tokens of `CLIPTUNE_SERVE_TOKEN`, one or several with commas between them.

    Raises:
        InputError: one is short or not ASCII, or there is none although others than this machine can reach `host`.
    """
    tokens = [token.strip() for token in environment.get(TOKEN, "").split(",") if token.strip()]
    if any(len(token) < _SHORTEST or not token.isascii() or not token.isprintable() for token in tokens):
        raise InputError(
            f"a token of {TOKEN} is weak: give at least {_SHORTEST} ASCII characters (openssl rand -hex 32)"
        )
    if not tokens and not _is_loopback(host):
        raise InputError(f"--host {host} can be reached by others: set {TOKEN} first (openssl rand -hex 32)")
    return tokens


def bind(host: str, port: int) -> socket.socket:
    """A socket bound there, which does not listen yet; port 0 is any free one.

    Raises:
        InputError: the address is none of this machine's, or the port is taken or not allowed.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
    except (OSError, OverflowError) as error:
        found.close()
        raise InputError(f"cannot listen on {host}:{port} ({error}): choose another --host or --port") from None
    return found


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False
