"""The socket that the server listens on, and the tokens of its clients."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from contextlib import suppress

from components.core.system.errors import InputError

TOKEN = "CLIPTUNE_SERVE_TOKEN"
_SHORTEST = 16


def read_tokens(host: str, environment: Mapping[str, str]) -> list[str]:
    """The comma-separated tokens of `CLIPTUNE_SERVE_TOKEN`.

    Raises:
        InputError: one is short or not ASCII, or there is none although other machines can reach `host`.
    """
    tokens = [token.strip() for token in environment.get(TOKEN, "").split(",") if token.strip()]
    if any(len(token) < _SHORTEST or not token.isascii() or not token.isprintable() for token in tokens):
        raise InputError(
            f"a token of {TOKEN} is weak: give at least {_SHORTEST} ASCII characters (openssl rand -hex 32)"
        )
    if not tokens and not _is_loopback(host):
        raise InputError(f"--host {host} can be reached by other machines: set {TOKEN} first (openssl rand -hex 32)")
    return tokens


def bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet; port 0 means any free port.

    Raises:
        InputError: the address is not an address of this machine, or the port is in use or not allowed.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except (OSError, OverflowError) as error:
        bound.close()
        raise InputError(f"cannot listen on {host}:{port} ({error}): choose another --host or --port") from None
    return bound


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False
