"""The socket that the server listens on, the tokens of its clients, and the limits of their requests."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from components.core.system.errors import InputError

TOKEN = "CLIPTUNE_SERVE_TOKEN"
_SHORTEST = 16


@dataclass(frozen=True)
class ServingLimits:
    """Limits of a request and of the server.

    Attributes:
        text: characters of a text; far more than a text tower reads.
        word: characters without white space between them; the time of CLIP's tokenizer grows with their square.
        texts: texts of a request.
        body: bytes of a request.
        queue: waiting texts; further requests are refused.
        connections: open connections; further ones get status 503.
        batch: texts that are embedded together; a single request may have more.
        stop_s: seconds to answer accepted requests after a SIGTERM.
    """

    text: int = 1000
    word: int = 100
    texts: int = 256
    body: int = 256 * 1024
    queue: int = 1024
    connections: int = 1024
    batch: int = 64
    stop_s: int = 30

    def __post_init__(self) -> None:
        if self.queue < self.texts:
            raise InputError(f"--max-queue {self.queue} is too small: give at least {self.texts}, as --max-texts")


def read_tokens(host: str, environment: Mapping[str, str]) -> list[str]:
    """The comma-separated tokens of `CLIPTUNE_SERVE_TOKEN`."""
    tokens = [token.strip() for token in environment.get(TOKEN, "").split(",") if token.strip()]
    if any(len(token) < _SHORTEST or not token.isascii() or not token.isprintable() for token in tokens):
        raise InputError(
            f"a token of {TOKEN} is weak: give at least {_SHORTEST} ASCII characters (openssl rand -hex 32)"
        )
    if not tokens and not _is_loopback(host):
        raise InputError(f"--host {host} can be reached by other machines: set {TOKEN} first (openssl rand -hex 32)")
    return tokens


def names_this_machine(host: str) -> bool:
    """Whether a Host header names this machine itself; other names may be of a site, and now lead here."""
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return name == "localhost" or _is_loopback(name.strip("[]"))


def is_foreign(headers: Mapping[str, str]) -> bool:
    """Whether a browser sent a request for a page of another site than this server's."""
    if (site := headers.get("sec-fetch-site")) is not None:
        return site not in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2] != headers.get("host")


def bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet; port 0 means any free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without the protocol asyncio sets no TCP_NODELAY, and a lone answer waits 40 ms for the client's acknowledgement.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
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
