"""Nobody else than this machine is served without a token, and a port that is taken is told."""

from __future__ import annotations

import socket

import pytest

from components.core.errors import InputError
from components.serving.address import TOKEN, bind, read_tokens

GOOD, OTHER = "a" * 16, "b" * 32


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "localhost", "example.org"])
def test_others_need_a_token(host: str) -> None:
    with pytest.raises(InputError, match=f"--host {host} can be reached by others: set {TOKEN}"):
        read_tokens(host, {})
    assert read_tokens(host, {TOKEN: GOOD}) == [GOOD]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "127.1.2.3"])
def test_this_machine_needs_none_but_may_have_several(host: str) -> None:
    assert read_tokens(host, {}) == read_tokens(host, {TOKEN: " , "}) == []
    assert read_tokens(host, {TOKEN: f"{GOOD}, {OTHER}"}) == [GOOD, OTHER]


@pytest.mark.parametrize("weak", ["short", f"{GOOD},short", "\u00e9" * 20, "a\nb" * 10])
def test_a_weak_token_is_refused_and_not_shown(weak: str) -> None:
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
