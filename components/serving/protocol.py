"""HTTP connections that end when the other side is too slow."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol


def timed(seconds: float) -> type[H11Protocol]:
    """uvicorn's protocol, with a limit on how long a request's head may take and how long nobody takes an answer.

    uvicorn itself limits only the time between two requests, and forgets that at the second one's first byte.
    """

    class TimedProtocol(H11Protocol):
        _head: asyncio.TimerHandle | None = None
        _stuck: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._time_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._time_head()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            for timer in (self._head, self._stuck):
                if timer is not None:
                    timer.cancel()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stuck = self.loop.call_later(seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._stuck is not None:
                self._stuck.cancel()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._abort_if_closing()

        def timeout_keep_alive_handler(self) -> None:
            super().timeout_keep_alive_handler()
            self._abort_if_closing()

        def _abort_if_closing(self) -> None:
            """A transport closes when all is sent, which may be never."""
            if self.transport.is_closing():
                self.loop.call_later(seconds, self.transport.abort)

        def _time_head(self) -> None:
            waits = self.cycle is None or self.cycle.response_complete
            if waits and self._head is None:
                self._head = self.loop.call_later(seconds, self.transport.abort)
            elif not waits and self._head is not None:
                self._head.cancel()
                self._head = None

    return TimedProtocol
