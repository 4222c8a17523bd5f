"""The socket of the server."""

from __future__ import annotations

import asyncio
import socket

from components.serving.server.address import bind


def test_an_answer_does_not_wait_for_the_acknowledgement_of_the_one_before() -> None:
    assert asyncio.run(_delays_nothing()) != 0


async def _delays_nothing() -> int:
    """The option TCP_NODELAY of a connection that asyncio accepted."""
    accepted = asyncio.get_running_loop().create_future()

    def connected(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    place = bind("127.0.0.1", 0)
    async with await asyncio.start_server(connected, sock=place):
        _, writer = await asyncio.open_connection(*place.getsockname())
        found: int = await accepted
        writer.close()
    return found
