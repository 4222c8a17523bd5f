"""Other machines need a token, and a port that is in use is reported."""

from __future__ import annotations

import socket

import pytest

from components.core.system.errors import InputError
from components.serving.address import TOKEN, bind, read_tokens

GOOD, OTHER = "a" * 16, "b" * 32


def test_other_machines_need_a_token() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "localhost", "example.org"):
        with pytest.raises(InputError, match=f"--host {host} can be reached by other machines: set {TOKEN}"):
            read_tokens(host, {})
        assert read_tokens(host, {TOKEN: GOOD}) == [GOOD]
    for host in ("127.0.0.1", "::1", "127.1.2.3"):
        assert read_tokens(host, {}) == read_tokens(host, {TOKEN: " , "}) == []
        assert read_tokens(host, {TOKEN: f"{GOOD}, {OTHER}"}) == [GOOD, OTHER]


def test_a_weak_token_is_refused_and_not_shown() -> None:
    for weak in ("short", f"{GOOD},short", "\u00e9" * 20, "a\nb" * 10):
        with pytest.raises(InputError, match=f"a token of {TOKEN} is weak") as caught:
            read_tokens("127.0.0.1", {TOKEN: weak})
        assert weak not in str(caught.value)


def test_a_taken_port_and_a_foreign_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"cannot listen on 127.0.0.1:{port} "):
            bind("127.0.0.1", port)
    with pytest.raises(InputError, match=r"cannot listen on 192\.0\.2\.1:0 "):
        bind("192.0.2.1", 0)
    with bind("127.0.0.1", 0) as place, pytest.raises(ConnectionRefusedError):
        socket.create_connection(place.getsockname())
